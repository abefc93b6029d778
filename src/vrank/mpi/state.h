/*
 * What MPI keeps for each virtual rank, and how errors are reported: all files
 * behind MPI's functions build on this.
 *
 *   state.c       the table of the ranks' states; entering MPI's functions
 *   error.c       classes, texts and handlers of errors
 *   comm.h        groups, attributes and communicators as objects
 *   info.c        hints
 *
 * Functions return an error class of MPI, 0 being MPI_SUCCESS, unless they
 * say otherwise; mpi_fail makes of it what the user's error handler wants.
 *
 * Every object belongs to one rank, which alone uses it. Other ranks touch
 * only mailboxes (under their lock), requests that are under way (until they
 * set `done`) and what is called shared.
 */
#ifndef POISE_VRANK_MPI_STATE_H
#define POISE_VRANK_MPI_STATE_H

#include "inside.h"
#include "vrank/match/match.h"
#include "vrank/thread/rank.h"

struct poise_world;
struct vrank_mpi;

/* ---- each rank (state.c) ------------------------------------------------ */

enum mpi_phase { RANK_BEFORE_INIT, RANK_INITIALIZED, RANK_FINALIZED };

/* Spare messages of the ranks of one worker. */
struct mpi_pool {
    struct poise_mpi_message *messages;
    int count;
} __attribute__((aligned(64)));

struct vrank_mpi {
    struct vrank *rank;
    int number;
    uint32_t phase; /* enum mpi_phase */
    struct mpi_pool *pool;
    const char *call;      /* the function of MPI that runs, for errors */
    const char *preparing; /* the one whose collective will be started later */
    struct poise_mpi_comm *world, *self;
    struct poise_mpi_comm *comms;    /* all of them */
    struct poise_mpi_request *spare; /* requests */
    struct request_slab *slabs;      /* in which they are; owned */
    struct poise_mpi_request *tasks; /* under way */
    struct poise_mpi_request *orphans;
    struct poise_mpi_request *waiting;    /* for it; for reports of deadlock */
    const struct vrank_envelope *probing; /* the same */
    const struct poise_mpi_comm *gathering; /* it waits in a collective of it */
    struct poise_mpi_comm *blamed; /* whose handler is to be called; held */
    uint32_t contexts;             /* that this rank has given out */
    uint64_t sends;                /* that it has begun */
    int thread_level;
    bool advancing; /* inside requests_advance */
    /* MPI_Buffer_attach */
    void *buffer;
    size_t buffer_bytes;
    size_t buffer_used;           /* atomic */
    struct mpi_keys *keys;        /* keyvals; owned */
    struct mpi_note *notes;       /* on what all ranks share; owned */
    struct mpi_handles *handles;  /* as integers; owned */
    struct mpi_codes *codes;      /* error classes of the user; owned */
    struct poise_mpi_file *files; /* open ones */
    MPI_Errhandler file_handler;  /* that files begin with; NULL: return */

    /* Others come here. */
    struct vrank_spin lock __attribute__((aligned(64)));
    uint32_t probers; /* it waits for any message */
    struct vrank_mailbox box;
};

/* How a job is set up. Zero is the default. */
struct mpi_options {
    struct poise_world *world;  /* of the processes; NULL: just one */
    uint64_t delay_ns;          /* one way, between processes */
    uint64_t delay_bytes_per_s; /* 0: as fast as it goes */
    bool checks;                /* compare what is sent and received */
};

/* Whether the types of messages are to be checked; constant while a job
 * runs. */
extern bool mpi_checks;

/* Begin to keep states; `checks`: see above. -EBUSY if a job runs already. */
int mpi_states_begin(bool checks);
/* Nothing of the job runs any more: free all, each state by `state_free` and
 * each worker's spare messages by `pool_free`. */
void mpi_states_end(void (*state_free)(struct vrank_mpi *mpi),
                    void (*pool_free)(struct mpi_pool *pool));

/* The state of a rank of this process, made at first use; NULL: no memory
 * (the job is then ending). */
struct vrank_mpi *mpi_at(int number);
/* The spare messages of a worker; once a state was made. */
struct mpi_pool *mpi_pool_of(int worker);

/* The same; NULL if it is another process's. */
struct vrank_mpi *mpi_if_local(int number);

/* For what may be called at any time: the caller's state. On a foreign thread
 * the job ends with a message. */
struct vrank_mpi *mpi_enter_any(const char *call);
/* Where MPI does not run: the job ends. */
struct vrank_mpi *mpi_enter_slow(const char *call);
/**
 * At the beginning of each function of MPI: the caller's state. Where there
 * is none (a foreign thread) or MPI does not run (before MPI_Init, after
 * MPI_Finalize) the job ends with a message.
 */
static inline struct vrank_mpi *mpi_enter(const char *call)
{
    const struct vrank_worker *worker = vrank_here;
    struct vrank_mpi *mpi = worker ? worker->running->mpi : NULL;
    if (__builtin_expect(!mpi || mpi->phase != RANK_INITIALIZED, 0)) {
        return mpi_enter_slow(call);
    }
    mpi->call = call;
    return mpi;
}

/* ---- errors (error.c) --------------------------------------------------- */

/* How a rank treats errors. */
struct poise_mpi_errhandler {
    int refs;
    MPI_Comm_errhandler_function *function;      /* NULL: predefined, or ... */
    MPI_File_errhandler_function *file_function; /* ... for files */
};
/* End the job: `on` is the name of what was used, or "". */
_Noreturn void errhandler_be_fatal(struct vrank_mpi *mpi, const char *on,
                                   int code, const char *what);
MPI_Errhandler errhandler_hold(MPI_Errhandler handler);
void errhandler_release(MPI_Errhandler handler);

/* Do what the handler of `comm` (NULL: of MPI_COMM_WORLD) says about an error
 * in the call that runs: end the job, or return `code`. `fmt` says what was
 * wrong, or is NULL. */
int mpi_fail(struct vrank_mpi *mpi, struct poise_mpi_comm *comm, int code,
             const char *fmt, ...) POISE_PRINTF(4, 5);
/* The class of a code, and its text. */
int mpi_error_class(struct vrank_mpi *mpi, int code);
const char *mpi_error_text(struct vrank_mpi *mpi, int code);
void mpi_codes_free(struct vrank_mpi *mpi);

#endif /* POISE_VRANK_MPI_STATE_H */
