/*
 * What each communicator of the program has got (communicator.c).
 */
#ifndef POISE_COLL_PRELOAD_COMMUNICATOR_H
#define POISE_COLL_PRELOAD_COMMUNICATOR_H

#include <mpi.h>

#include <poise/coll.h>
#include <poise/conditional.h>
#include <poise/core.h>

enum entry {
    BARRIER,
    BCAST,
    ALLREDUCE,
    REDUCE,
    GATHER,
    SCATTER,
    ALLGATHER,
    ALLTOALL,
    ALLTOALLV,
    GATHERV,
    SCATTERV,
    ALLGATHERV,
    REDUCE_SCATTER,
    REDUCE_SCATTER_BLOCK,
    SCAN,
    EXSCAN,
    SERVED, /* those before; what follows is counted only */
    ALLTOALLW = SERVED,
    IBARRIER,
    IBCAST,
    IALLREDUCE,
    IREDUCE,
    IGATHER,
    ISCATTER,
    IALLGATHER,
    IALLTOALL,
    IALLTOALLV,
    IGATHERV,
    ISCATTERV,
    IALLGATHERV,
    IREDUCE_SCATTER,
    IREDUCE_SCATTER_BLOCK,
    ISCAN,
    IEXSCAN,
    IALLTOALLW,
    ENTRIES
};
enum reason {
    BY_TREE,
    INTER,
    LONG,
    TYPE,
    EMPTY,
    WRONG,
    EARLY,
    NONBLOCKING,
    OTHER,
    REASONS
};

enum { STATE_ID_BYTES = 16 };

/* What a communicator has got: a count of calls, until that is enough for a
 * world and trees. */
struct state {
    struct state *next; /* in its bucket, or among those that end */
    MPI_Comm comm;
    int rank, size;
    bool inter;
    bool tried;     /* the rest was made, if it could be */
    uint64_t spent; /* on calls of the library's: the same on all ranks */
    uint64_t served[SERVED]; /* calls over trees */
    uint64_t early[SERVED];  /* calls before it had any */
    uint64_t most;           /* the longest of them, in bytes */
    /* Of one with a condition, the same on all of its ranks, and no other's: in
     * this order all ranks end them. */
    unsigned char id[STATE_ID_BYTES];
    struct poise_world *world; /* NULL: the library serves it, still or ever */
    struct poise_coll *coll;
    struct poise_coll_if *cond; /* NULL: nothing is conditional here */
    struct marks *marks; /* what traces know of it (events.c); NULL: nothing */
};

/* Who I am in the communicator of a call. */
struct seat {
    MPI_Comm comm;
    struct state *state;
    int rank, size;
    int code; /* MPI's, if it is no communicator: its handler was called */
};

/* Above 0 while Poise itself calls MPI. */
extern __thread int preload_inside __attribute__((visibility("hidden")));

/* Look a communicator up, alone, and count nothing. False: nothing is known of
 * it, and nothing will be. */
bool preload_look(MPI_Comm comm, struct seat *out);
/* The same of a call that comes. False: the library serves it, whatever is
 * asked. */
bool preload_sit(enum entry entry, MPI_Comm comm, struct seat *out);
/* The trees to use for `bytes` from each rank, or NULL: the library's turn.
 * Collective over the communicator, when its calls have come up to the limit.
 * `bytes` are the same on all of its ranks; 0 is for calls that always go over
 * trees. */
struct poise_coll *preload_trees(enum entry entry, struct seat *seat,
                                 uint64_t bytes);
/* The program frees a communicator: begin to free what there is of it. Local,
 * in any order. */
void preload_forget(MPI_Comm comm);
/* What a call over trees returns to the program; `code` may be an error of
 * MPI's, too (above 0), of which its handler has to hear. */
int preload_result(enum entry entry, const struct seat *seat, int code);
void preload_count(enum entry entry, enum reason reason);
/* How many so far, by trees or by the library. Any thread. */
uint64_t preload_calls(enum entry entry, bool by_tree);
/* "Barrier", ... */
const char *preload_name(enum entry entry);
/* A communicator of this process alone, which returns errors. */
MPI_Comm preload_quiet(void);
/* Say the last error, and end the job: what was asked for cannot be. All ranks
 * come here, and the first of them says so. */
void preload_refuse(MPI_Comm comm, int rank);
/* MPI runs now: what is asked for by the environment must be possible, else
 * the job ends with status 2. Collective over MPI_COMM_WORLD. */
void preload_begin(void);
/* Free all, while MPI runs. Collective over MPI_COMM_WORLD. */
void preload_end(void);
/* A tree file that somebody else writes while the program runs (watch.c): */
/* Whether POISE_TREE_WATCH names one. */
bool watch_wanted(void);
/* MPI runs now: this is rank 0 of MPI_COMM_WORLD, which looks. */
void watch_begin(int size);
extern bool watch_is_on __attribute__((visibility("hidden")));
/* Propose the file's tree if it is another one than when it was last looked at,
 * but look no more often than some times a second. */
void watch_look(struct poise_coll *coll);

/* Records of the program's point-to-point messages (messages.c): */
/* Make them if POISE_TRACE_MESSAGES asks for it, while a trace is in force. MPI
 * runs now. */
void messages_begin(void);
/* Say what was not recorded. */
void messages_end(void);

/* The last error, on standard error, behind `before`. */
void preload_say_error(const char *before);
/* The counts, if they are asked for. */
void preload_report(void);

#endif
