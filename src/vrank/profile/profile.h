/*
 * What a run is seen to do: where the time of each rank goes, how many ranks
 * could run at each moment, what the functions of MPI take.
 *
 *   profile.c   ranks that run and wait; parallelism
 *   calls.c     functions of MPI, and phases between collectives
 *   counters.c  what the kernel and the processor counted
 *   gather.c    the processes' parts put together
 *   file.c      written as JSON, and read again
 *
 * A rank's record is written by its own worker. Where another worker wakes it,
 * that one leaves the moment and the cause in the record before it puts the
 * rank into the inbox. How many ranks can run is one number for the process,
 * under a lock. All times here are ticks.
 */
#ifndef POISE_VRANK_PROFILE_H
#define POISE_VRANK_PROFILE_H

#include "vrank/thread/thread.h"

/** Functions of MPI that are counted: programs call a hundred. */
#define PROFILE_CALLS 512
/** Phases of a rank; what is beyond is one. */
#define PROFILE_PHASES 64

/** What becomes of the time of a rank. */
struct profile_times {
    uint64_t ticks[POISE_VRANK_TIMES];
};

struct profile_call {
    uint64_t calls;
    struct profile_times times;
};

/** Between two collectives, or MPI_Init, MPI_Finalize: where they were called
 * from; NULL is the start of the program. */
struct profile_phase {
    const void *from, *to;
    int from_call, to_call;
    uint64_t count;
    struct profile_times times;
    uint64_t moved[POISE_VRANK_MOVES];
};

struct profile_edge {
    int dest; /* -1: free */
    uint64_t messages, bytes;
};

/* A run in parts of the same length, which doubles when they do not do, and
 * what a rank did in each. */
enum { PROFILE_PARTS = 96, PROFILE_SHOWN = 64 };
struct profile_course {
    uint64_t length; /* ticks of a part */
    struct profile_times parts[PROFILE_PARTS];
};

struct profile_rank {
    struct profile *profile; /* of which it is a part */
    int number, worker;
    uint32_t state;   /* enum poise_vrank_time, in which it is since */
    uint32_t resumed; /* the one to go back to when it runs */
    uint64_t since;
    struct profile_times times;
    uint64_t switches;
    uint64_t moved[POISE_VRANK_MOVES]; /* as of the last phase that ended */
    /* Written by the thread that wakes it: when; 0: not yet. */
    uint64_t woken;
    /* What the worker had waited for the network when the rank's wait began. */
    uint64_t network_then, queued_then;
    uint32_t cause; /* enum vrank_cause */
    /* The function of MPI that runs: depth 0, none. */
    int depth, call;
    const void *frame, *site;
    struct profile_times entered;
    struct profile_call *calls; /* [call_count] of the profile; owned */
    /* The phase that runs. */
    const void *phase_from;
    int phase_call;
    struct profile_times phase_times;
    uint64_t phase_moved[POISE_VRANK_MOVES];
    struct profile_phase *phases; /* [PROFILE_PHASES]; owned */
    int phase_count;
    /* Messages to other ranks: a hash table by their number; owned. */
    struct profile_edge *edges;
    uint32_t edge_mask, edge_count;
    uint64_t sizes[POISE_VRANK_SIZES];
    struct profile_course *course; /* owned; NULL: not kept of this one */
};

struct profile_worker {
    uint64_t start, end;      /* ticks */
    uint64_t idle;            /* ticks without a rank that could run */
    bool is_idle, idle_ended; /* a rank was woken meanwhile, by: */
    uint32_t idle_cause;
    uint64_t idle_since;
    uint64_t idle_by[VRANK_CAUSES]; /* parts of it, by what ended them */
    uint64_t idle_pending;          /* over, but no rank was woken yet */
    uint64_t idle_queued; /* others had the processor: in none of idle_by */
    uint64_t queued_seen; /* in the run queue until it became idle, and since */
    int queue_fd;         /* what the kernel says of that; -1: nothing */
    uint64_t switches;
    int fds[POISE_VRANK_COUNTERS]; /* of the processor's counters; -1 */
    int64_t start_kernel[POISE_VRANK_KERNELS];
    int64_t kernel[POISE_VRANK_KERNELS];
    int64_t counters[POISE_VRANK_COUNTERS]; /* -1: not available */
};

struct profile {
    /* Of the job; strings are borrowed. */
    int count, processes, process, threads;
    const char *policy, *placement;
    struct profile_rank *ranks; /* [rank_count], as in the engine; owned */
    int rank_count;
    struct profile_worker *workers; /* owned */
    int worker_count;
    uint64_t start_ns, end_ns, start, end;
    struct vrank_spin lock; /* for what follows */
    int runnable;
    uint64_t runnable_since;
    uint64_t *runnable_ticks;      /* [rank_count + 1]; owned */
    int counter_error;             /* atomic: why there is none; 0: there are */
    bool is_phased[PROFILE_CALLS]; /* a collective, or the like */
    const char *names[PROFILE_CALLS]; /* owned */
    int call_count;
};

/* ---- profile.c ---------------------------------------------------------- */

/* What the scheduler calls where a profile is wanted. */
extern const struct vrank_profile_ops profile_ops;
void profile_free(struct profile *profile);
/* Bring the record of a running rank up to now. */
void profile_touch(struct profile_rank *record, uint64_t now);
/* The rank sends `bytes` bytes to rank number `dest`. */
void profile_message(const struct vrank *rank, int dest, size_t bytes);

/* ---- calls.c ---------------------------------------------------- */

/* Whether MPI's `name` may be replaced by another that goes on to it: it is
 * called, and its address means nothing. */
bool profile_wraps(const char *name);
/* A function that does what `function`, MPI's `name`, does and notes how long
 * it took. `function` itself where there is no room for more. */
void *profile_wrap(struct profile *profile, const char *name, void *function);

/* ---- counters.c ------------------------------------------------- */

void counters_begin(struct profile *profile, struct profile_worker *worker);
void counters_end(struct profile_worker *worker);
/* How long the calling thread, the worker's, has waited for a processor in all;
 * -1: not known. */
int64_t counters_queued_ns(const struct profile_worker *worker);

/* ---- gather.c --------------------------------------------------- */

struct poise_world;
/* The whole job's, in process 0, else *out is NULL. `world` may be NULL.
 * Collective over it. */
int profile_gather(const struct profile *profile, struct poise_world *world,
                   struct poise_vrank_profile **out);

#endif
