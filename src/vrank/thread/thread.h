/*
 * What the files of room vrank share: the engine, on which MPI
 * stands.
 *
 *   switch.c  from one stack to another
 *   stack.c   stacks with guard pages
 *   sched.c   ranks that run, wait and wake each other
 *   timer.c   ranks that wait until a time
 *   poll.c    ranks that ask again and again, for nothing
 *   engine.c  a run: who is where, starting, deadlock, the end
 *
 * A virtual rank is a user-level thread. It is pinned to one kernel thread, its
 * worker, for life; thread-local storage of the kernel thread may be cached
 * over a switch. Worker 0 is the thread that called vrank_run_job, and the
 * only one that talks to other processes. Nothing preempts a rank: between
 * two calls of vrank_yield, vrank_park and vrank_park_until it alone runs on
 * its worker, so state that only ranks of one worker touch needs no lock.
 */
#ifndef POISE_VRANK_INTERNAL_H
#define POISE_VRANK_INTERNAL_H

#include <poise/core.h>

#include <poise/vrank.h>

#include <pthread.h>

struct context;
struct vrank;
struct vrank_worker;
struct profile;
struct profile_rank;

/* ---- who and where ------------------------------------------------------ */

/** The rank that runs on this kernel thread; NULL on a foreign thread and
 * where the engine itself runs (progress from an idle worker). */
struct vrank *vrank_self(void);
/** 0..V-1 over the whole job. */
int vrank_number(const struct vrank *rank);
/** V: how many ranks the job has; 0 while no job runs. */
int vrank_count(void);
/** P and this process's number, 0..P-1. */
int vrank_processes(void);
int vrank_process(void);
/** The process that holds a rank. */
int vrank_process_of(int rank);
bool vrank_is_local(int rank);
/** A rank of this process; NULL for others. */
struct vrank *vrank_local(int rank);
/** The ranks of this process in ascending order; returns how many. */
int vrank_locals(struct vrank *const **ranks);
/** The same of any process, by number: a new array of the caller's. */
int vrank_ranks_of(int process, int **ranks);
/** Kernel threads of this process, and which of them a rank is pinned to. */
int vrank_workers(void);
int vrank_worker_of(const struct vrank *rank);
/** Whether `rank` runs on the calling kernel thread, hence cannot run now. */
bool vrank_is_here(const struct vrank *rank);
/** Whether the caller's kernel thread is worker 0, which talks to others. */
bool vrank_communicates(void);

/** What MPI keeps of a rank; NULL until set. */
void *vrank_mpi(const struct vrank *rank);
void vrank_set_mpi(struct vrank *rank, void *mpi);

/* ---- running and waiting ------------------------------------------------ */

/** Let the other ranks of this worker run. Nothing on a foreign thread. */
void vrank_yield(void);
/** The same, by a rank that asked for something (by the MPI call `why`, a
 * literal) that has not come yet. */
void vrank_poll(const char *why);
/** What the rank asked for had come. */
void vrank_polled(void);
/**
 * Block until unparked. One permit is kept: an unpark that comes before park
 * is not lost. May return without one: loop on a condition. `why` is a
 * literal, the MPI call, for reports and profiles.
 */
void vrank_park(const char *why);
/** The same, at most until poise_clock_ns() reaches `deadline_ns`. */
void vrank_park_until(const char *why, uint64_t deadline_ns);
/** End the park of a rank of this process, or its next one. Any worker. What
 * the caller wrote before is seen by the rank after its park. Nothing if the
 * rank has ended. */
void vrank_unpark(struct vrank *rank);
/** From now on the rank, which has neighbours in other processes, runs before
 * others where the policy is priority. Its worker. */
void vrank_hurry(struct vrank *rank);
/** Whether another rank of the calling worker can run, or may by what others
 * have put into its inbox. */
bool vrank_has_ready(void);
/** Make worker 0 call progress() soon. Any worker. */
void vrank_wake_communicator(void);

/**
 * A lock for a few instructions: its holder neither yields nor parks. Costs
 * nothing in a process with one worker. Zero is free.
 */
struct vrank_spin {
    uint32_t held;
};
void vrank_spin_slow(struct vrank_spin *spin);
static inline void vrank_spin_lock(struct vrank_spin *spin)
{
    extern bool vrank_concurrent;
    if (vrank_concurrent &&
        __atomic_exchange_n(&spin->held, 1, __ATOMIC_ACQUIRE) != 0) {
        vrank_spin_slow(spin);
    }
}
static inline void vrank_spin_unlock(struct vrank_spin *spin)
{
    extern bool vrank_concurrent;
    if (vrank_concurrent) {
        __atomic_store_n(&spin->held, 0, __ATOMIC_RELEASE);
    }
}
/** Whether the job has more than one worker; constant while a job runs. */
extern bool vrank_concurrent;

/* ---- the end ------------------------------------------------------------ */

/** End the calling rank with an exit status, from however deep; rank_end runs
 * first. Other ranks go on. */
_Noreturn void vrank_exit(int status);

/**
 * End the whole job, in all processes, with exit status `status` (MPI_Abort,
 * fatal errors). `fmt` says why, in one line without the final newline, or is
 * NULL. Any thread of the process; does not return to a rank.
 */
void vrank_abort(int status, const char *fmt, ...) POISE_PRINTF(2, 3);

/* ---- what MPI gives the engine ------------------------------------------ */

struct vrank_mpi_ops {
    /** On the rank's own stack before its body and after it (also on
     * vrank_exit). A negative code of rank_start aborts the job with the error
     * in force. rank_end calls vrank_abort where the others cannot go on
     * without this rank (it exits and has not finalised). NULL: none. */
    int (*rank_start)(struct vrank *rank, void *arg);
    void (*rank_end)(struct vrank *rank, int status, void *arg);
    /** On worker 0 after the run, for every rank that was started, ended or
     * not: free its state. Nothing runs any more. NULL: none. */
    void (*rank_free)(struct vrank *rank, void *arg);
    /** Worker 0, when it runs out of ready ranks and every so often: make
     * progress with other processes. Returns how many things happened. On a
     * rank's stack or the engine's own; does not yield. NULL: none. */
    int (*progress)(void *arg);
    /** Worker 0 has nothing to run: wait for other processes, at most
     * `timeout_ns`, or until wake (any thread) is called; a wake that came
     * just before must not be lost. Both NULL: the engine waits by itself. */
    void (*idle)(uint64_t timeout_ns, void *arg);
    void (*wake)(void *arg);
    /** All ranks of this process are blocked and progress found nothing.
     * Whether the same holds everywhere and no message is in flight: 1, a
     * deadlock, which the engine then reports; 0, not so, or not known yet
     * (asked again after idle). NULL: 1. */
    int (*quiet)(void *arg);
    /** All ranks of this process have ended; keep on serving others until
     * this returns 1. NULL: at once. */
    int (*finished)(void *arg);
    /** Append what a blocked rank waits for: "MPI_Recv from rank 3, tag 7".
     * Whatever it was parked for stands before. NULL: nothing. */
    void (*describe)(const struct vrank *rank, struct poise_buf *out,
                     void *arg);
    /** Tell the other processes to end with `status`. Any thread. */
    void (*end_others)(int status, void *arg);
};

/** A run of ranks in this process. Zero is the default of every member. */
struct vrank_job {
    int count;         /**< V, in the whole job; at least 1 */
    int processes;     /**< P; 0: 1 */
    int process;       /**< which of them this is */
    int threads;       /**< workers of this process; 0: 1 */
    const int *placed; /**< [V] the process of each rank; NULL: by
                            `placement` */
    enum poise_vrank_placement placement;
    enum poise_vrank_policy policy;
    int serial;         /**< POISE_VRANK_SERIAL: workers that may compute at
                             once; 0: 1 */
    const int *cpus;    /**< [threads] the processor of each worker; NULL:
                             wherever the kernel likes */
    const bool *urgent; /**< POISE_VRANK_PRIORITY: [V] which ranks go first;
                             NULL: learnt */
    size_t stack_bytes; /**< of each rank; 0: 8 MiB */
    struct profile *profile; /**< filled in; NULL: not wanted */
    uint64_t patience_ns;    /**< with ranks that only poll; 0: 5 s */
    /** What each rank does, on its own stack; returns its exit status. */
    int (*body)(struct vrank *rank, void *arg);
    const struct vrank_mpi_ops *mpi; /**< NULL: none */
    /** __cxa_get_globals of the C++ library that ranks share: what a worker
     * keeps of its exceptions, saved at each switch. NULL: none. */
    void *(*exceptions)(void);
    /** On each worker before its ranks run. NULL: nothing. */
    void (*thread_start)(int worker, void *arg);
    /** Says a line to the user. NULL: said by nobody. Any thread. */
    void (*say)(const char *line, void *arg);
    /** Ends the process with a status: what vrank_abort calls last. NULL: the
     * run itself ends, as soon as every worker comes to a call of the
     * engine. */
    void (*die)(int status, void *arg);
    void *arg; /**< for all of the above */
};

struct vrank_outcome {
    int status;        /**< exit status: the first that was not 0, or 0 */
    bool aborted;      /**< by vrank_abort */
    bool deadlock;     /**< aborted for it; `status` is POISE_VRANK_FAILED */
    uint64_t switches; /**< from rank to rank, in this process */
};

/**
 * Run the job's local ranks until all have ended. One job at a time in a
 * process. On success the outcome is filled in, whatever became of the ranks;
 * an error means that none was started: -ENOMEM, -EINVAL, -EAGAIN (no
 * thread), -EBUSY (a job runs already).
 */
/** The process of a rank of a job that need not run yet. */
int vrank_placed(const struct vrank_job *job, int rank);
int vrank_run_job(const struct vrank_job *job, struct vrank_outcome *out);

/* ---- where Poise is installed (compile.c) ------------------------------- */

/** Owned strings, without a slash at the end. */
struct vrank_folders {
    char *library; /**< libpoise and libpoise-vmpi */
    char *include; /**< of the mpi.h that programs see */
    char *start;   /**< libpoise-start.a */
};
int vrank_folders(struct vrank_folders *out);
void vrank_folders_free(struct vrank_folders *folders);

/* ---- inside the engine: nothing below is for MPI ------------------------ */

enum vrank_state {
    VRANK_RUNS,   /* or is ready to */
    VRANK_PERMIT, /* the same, and its next park returns at once */
    VRANK_PARKED,
    VRANK_ENDED
};

/* What the C++ run-time keeps of a thread's exceptions (Itanium ABI 2.2.2). */
struct vrank_exceptions {
    void *caught;
    uintptr_t uncaught;
};

/* Two cache lines: what every switch touches, and the rest. */
struct vrank {
    void *sp; /* while it does not run */
    struct vrank *next;
    struct vrank_worker *worker;
    uint32_t state; /* enum vrank_state; atomic if there are workers */
    int saved_errno;
    struct vrank_exceptions exceptions;
    struct poise_ctx *ctx; /* owned; NULL: the kernel thread's */
    void *mpi;

    struct context *context; /* its memory, where that is swapped; or NULL */
    void *owner;             /* whoever runs a program in it (run.c) */
    const char *why;         /* of its park; NULL while it runs */
    uint64_t deadline_ns;    /* of its park */
    int timer;               /* its place in the worker's timers, or -1 */
    struct profile_rank *profile; /* NULL: not wanted */
    int number;
    bool is_urgent; /* the policy of priority runs it first */
    int status;
    void *stack; /* lowest usable address; NULL: the kernel thread's */
    size_t stack_bytes;
    void *fiber;      /* ThreadSanitizer's */
    void *fake_stack; /* AddressSanitizer's */
} __attribute__((aligned(64)));

struct vrank_queue {
    struct vrank *head, *tail;
};

/* What a worker has to look after besides its ranks. */
enum {
    VRANK_WATCH_TURN = 1,    /* it may compute: the policy of serialisation */
    VRANK_WATCH_ORDER = 2,   /* ranks that wake are not simply the last */
    VRANK_WATCH_PROFILE = 4, /* where time goes */
    VRANK_WATCH_CLOCK = 8,   /* messages of other processes, by time */
    VRANK_WATCH_NEXT =
        VRANK_WATCH_TURN | VRANK_WATCH_PROFILE | VRANK_WATCH_CLOCK,
    VRANK_WATCH_READY = VRANK_WATCH_ORDER | VRANK_WATCH_PROFILE
};

struct vrank_worker {
    struct vrank *running; /* NULL: the engine */
    /* Ready ranks: those of class 0 run before those of class 1. */
    struct vrank_queue ready[2];
    uint32_t budget;   /* switches until the worker looks around, */
    uint32_t watch;    /* VRANK_WATCH_...: one test for all of them */
    uint64_t look_due; /* or until then, in ticks */
    int number;
    int *errno_at;
    struct vrank_exceptions *exceptions_at;
    struct vrank_exceptions no_exceptions; /* where there is no C++ */
    uint64_t switches;
    uint64_t wakes; /* of its ranks, but by time; and polls that found
                       something */
    uint32_t cause; /* enum profile_cause, of what it does */
    /* Ranks that only poll (poll.c). */
    uint64_t polls, polls_seen, polls_wakes;
    uint64_t poll_due, poll_cpu_ns; /* when to look, in ticks; then */
    uint64_t poll_since_ns;         /* atomic; 0: there is more to it */
    const char *poll_why;
    int left;              /* ranks that have not ended */
    struct vrank engine;   /* the kernel thread itself, between ranks */
    struct vrank **timers; /* a heap by deadline; owned */
    int timer_count;
    struct vrank *leaving; /* ended; its stack is still in use */

    /* Written by others. */
    struct vrank *inbox __attribute__((aligned(64)));
    uint32_t idle; /* 1 while it sleeps or is about to */
    struct poise_event event;
    pthread_t thread; /* not of worker 0 */
} __attribute__((aligned(64)));

struct vrank_engine {
    struct vrank_job job; /* with defaults filled in */
    struct vrank_worker *workers;
    struct vrank *ranks;   /* [local_count] */
    struct vrank **locals; /* the same as pointers */
    int local_count;
    int *process_of; /* [V] */
    int *local_of;   /* [V] index into ranks, or -1 */
    void *stacks;    /* one mapping for all */
    size_t stacks_bytes, slot_bytes, stack_bytes;
    size_t promised_bytes;   /* of each stack: what was asked for */
    uint32_t go;             /* atomic: 0 wait, 1 run */
    struct poise_event gate; /* signalled with `go` */
    uint32_t halted;         /* atomic: workers go home */
    uint32_t aborting;       /* atomic: somebody has taken it upon himself */
    int status;              /* atomic: what the run ends with */
    bool aborted, deadlock;  /* written by him */
    int home;                /* atomic: workers but the first that are done */
    /* Workers that have nothing to run and wait for nothing but each other:
     * what deadlock is told by. Under the lock. */
    struct vrank_spin stuck_lock;
    int stuck;
    /* Serialisation: how many workers compute, and how many want to. */
    uint32_t turns_taken, turn_waiters; /* atomic */
    struct poise_event turn_event;
    uint32_t poll_said; /* atomic: somebody has warned */
};

extern struct vrank_engine *vrank_engine;
/* The worker that this kernel thread is; NULL on a foreign thread. */
extern _Thread_local struct vrank_worker *vrank_here
    __attribute__((tls_model("initial-exec")));

/* switch.c: leave the current stack, whose pointer goes to *save, for `load`,
 * on which vrank_jump was called or vrank_prepare left it. */
void vrank_jump(void **save, void *load);
/* A stack pointer for vrank_jump that enters `entry` (which never returns) on
 * the stack that ends at `top`. */
void *vrank_prepare(void *top, void (*entry)(void));

/* stack.c */
int stack_create(struct vrank_engine *engine);
void stack_destroy(struct vrank_engine *engine);
/* The lowest usable address of slot `index`, and where its stack begins. */
void *stack_low(const struct vrank_engine *engine, int index);
void *stack_top(const struct vrank_engine *engine, int index);

/* sched.c */
void sched_rank_init(struct vrank *rank, struct vrank_worker *worker,
                     void *top);
/* Run the worker's ranks until they have all ended or the run is halted. */
void sched_worker_run(struct vrank_worker *worker);
/* Put `rank`, which belongs to `worker`, into its inbox and wake it. */
void sched_post(struct vrank_worker *worker, struct vrank *rank);
/* The end of the rank that runs. */
_Noreturn void sched_leave(struct vrank_worker *worker);
/* Leave a rank of a run that was halted, for ever. */
_Noreturn void sched_stop(struct vrank_worker *worker);
/* What a rank owns in the scheduler; it does not run. */
void sched_rank_free(struct vrank *rank);
/* Whether somebody has put something into the worker's inbox. */
bool sched_has_mail(const struct vrank_worker *worker);

/* timer.c */
void timer_add(struct vrank_worker *worker, struct vrank *rank);
void timer_remove(struct vrank_worker *worker, struct vrank *rank);
/* Unpark those whose time has come; when the next one's comes (UINT64_MAX:
 * none). */
uint64_t timer_fire(struct vrank_worker *worker);

/* poll.c: a rank of the worker has polled; look whether all do nothing else. */
void poll_look(struct vrank_worker *worker);

/* engine.c: the worker found nothing to run: wait. */
void engine_idle(struct vrank_worker *worker);
/* Whether the worker may go home: its ranks have ended and, on worker 0,
 * nobody needs this process any more. */
bool engine_done(struct vrank_worker *worker);
/* The body of a rank; on its own stack. */
void engine_rank_main(struct vrank *rank);
/* Let all workers go home. */
void engine_halt(struct vrank_engine *engine);

#endif
