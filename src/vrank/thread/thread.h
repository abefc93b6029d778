/*
 * Virtual ranks as user-level threads: what the other rooms of the wing use of
 * the scheduler. All of MPI builds on it.
 *
 *   switch.c     from one stack to another
 *   stack.c      stacks with guard pages
 *   scheduler.c  ranks that run, wait and wake each other
 *   timer.c      ranks that wait until a time
 *   poll.c       ranks that ask again and again, for nothing
 *   idle.c       workers without a rank that can run; deadlock
 *   deadlock.c   what ranks wait for that wait for ever
 *   engine.c     a run: which rank is where, how it starts and ends
 *
 * A virtual rank is pinned to one kernel thread, its worker, for life;
 * thread-local storage of the kernel thread may be cached over a switch.
 * Worker 0 is the thread that called vrank_run_job, and the only one that
 * exchanges messages with other processes. Nothing preempts a rank: between
 * two calls of vrank_yield, vrank_park and vrank_park_until it alone runs on
 * its worker, so state that only ranks of one worker touch needs no lock.
 *
 * The rooms above hook into a job by tables of functions: MPI (struct
 * vrank_mpi_ops), swapping (struct vrank_swap_ops) and profiles (struct
 * vrank_profile_ops). A job without one of them pays nothing for it: each
 * worker has one word of flags that a switch tests.
 */
#ifndef POISE_VRANK_THREAD_H
#define POISE_VRANK_THREAD_H

#include <poise/core.h>

#include <poise/vrank.h>

struct context;
struct vrank;
struct vrank_worker;
struct vrank_job;
struct profile;

/* ---- where ranks are ----------------------------------------------------- */

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
/** Whether the caller's kernel thread is worker 0, which exchanges messages
 * with other processes. */
bool vrank_communicates(void);

/** MPI's state of a rank; NULL until set. */
void *vrank_mpi(const struct vrank *rank);
void vrank_set_mpi(struct vrank *rank, void *state);
/** Bytes of a rank's stack as they were asked for, or by default. */
size_t vrank_stack_bytes(void);
/** Whether `address` lies in the guard below the rank's stack. */
bool vrank_is_guard(const struct vrank *rank, const void *address);

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
 * others where the policy is priority, unless the user named the ranks that
 * do. To be called by its worker. */
void vrank_prioritize(struct vrank *rank);
/** Whether another rank of the calling worker can run, or will as soon as the
 * worker looks into its inbox. */
bool vrank_has_ready(void);
/** Make worker 0 call progress() soon. Any worker. */
void vrank_wake_communicator(void);

/**
 * A lock for a few instructions: its holder neither yields nor parks. It costs
 * nothing in a process with one worker, where nothing else runs before the
 * holder has let go. Zero is free.
 *
 * A rank that waits for it keeps its worker: it may be half-way through a
 * switch, or hold another lock, where no other rank of the worker may run. So
 * the holder, which runs on another kernel thread, always comes to release it,
 * and there is no deadlock as long as two such locks are never taken in
 * different orders.
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

/** Show the user a line, without a newline; nothing if the job has no `say`.
 * Any thread. */
void vrank_say(const char *line);
/** Lines that a job shows once, however often there is reason to. */
enum vrank_once {
    VRANK_ONCE_POLLING, /* ranks only poll */
    VRANK_ONCE_REFUSED, /* a call of the C library was refused */
    VRANK_ONCE_MEMORY,  /* a rank got no memory */
    VRANK_ONCE_THREADS, /* a rank ended, and its threads need not have */
};
/** Show such a line, unless it was shown. Any thread. */
void vrank_say_once(enum vrank_once what, const char *fmt, ...)
    POISE_PRINTF(2, 3);

/**
 * End the whole job, in all processes, with exit status `status` (MPI_Abort,
 * fatal errors). `fmt` says why, in one line without the final newline, or is
 * NULL. Any thread of the process; does not return to a rank.
 */
void vrank_abort(int status, const char *fmt, ...) POISE_PRINTF(2, 3);

/**
 * The rank with the lowest number, of all that have ended with a status other
 * than 0 as far as this process knows, and that status: what the job ends with,
 * however its ranks are cut into processes. As a number to be handed to
 * vrank_failed of another process; UINT64_MAX: none. Any thread.
 */
uint64_t vrank_failure(void);
void vrank_failed(uint64_t failure);

/** At a deadlock: append what this process's ranks wait for, as bytes that
 * process 0 gets by vrank_waits_add before it lets the engine know. 0 or
 * -ENOMEM. On worker 0. */
int vrank_waits(struct poise_buf *out);
int vrank_waits_add(const void *data, size_t bytes);
/** How many of these bytes, `most` at most, can be handed on by themselves. */
size_t vrank_waits_part(const void *data, size_t bytes, size_t most);

/* ---- hooks --------------------------------------------------------------- */

/** Whom a blocked rank waits for. */
struct vrank_wait {
    int peer;            /**< the number of a rank; -1: any of several */
    uint64_t collective; /**< it waits, where `peer` is -1, until all ranks of
                              the job wait for this; 0: not so */
};

/** What MPI does for the engine. */
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
    /** Worker 0: all ranks of this process are blocked and progress found
     * nothing. Whether the same holds everywhere and no message is in flight:
     * 1, a deadlock, which the engine then reports, in process 0 only; 0, not
     * so, or not known yet (asked again after idle). NULL: whether there are
     * ranks left. */
    int (*is_deadlock)(void *arg);
    /** All ranks of this process have ended; keep on serving others until
     * this returns 1. NULL: at once. */
    int (*finished)(void *arg);
    /** Append what a blocked rank waits for: "from rank 3, tag 7". The call for
     * which it was parked stands in front of it. NULL: nothing. */
    void (*describe)(const struct vrank *rank, struct poise_buf *out,
                     void *arg);
    /** Whom it waits for; *out says that this is not known. NULL: unknown. */
    void (*waits_for)(const struct vrank *rank, struct vrank_wait *out,
                      void *arg);
    /** Make the other processes end with `status`. Any thread. */
    void (*end_others)(int status, void *arg);
};

/** What swapping does for the scheduler, for ranks that have a context. All
 * members are needed. */
struct vrank_swap_ops {
    /** The rank is about to wait, and its context may go to disk; it runs
     * again, and its context must be in memory. On the rank's stack. */
    void (*suspend)(struct context *context);
    void (*resume)(struct context *context);
    /** The calling worker will need it next. */
    void (*prefetch)(struct context *context);
    /** Whether it is in memory: a guess, by which the next rank is chosen. */
    bool (*is_resident)(const struct context *context);
    /** Its rank has ended. On the rank's stack. */
    void (*retire)(struct context *context);
};

/** Why a rank that waited can run. */
enum vrank_cause {
    VRANK_BY_RANK,    /**< another rank of the process */
    VRANK_BY_NETWORK, /**< progress with other processes */
    VRANK_BY_TIME,    /**< a timer */
    VRANK_CAUSES
};

/** What a profile notes of the scheduler. All members are needed. */
struct vrank_profile_ops {
    /** Once ranks and workers exist, before any runs: 0, or an error that
     * ends the run; and when all have ended. */
    int (*begin)(struct profile *profile, const struct vrank_job *job);
    void (*end)(struct profile *profile);
    /** On the kernel thread of a worker, before its ranks run and after, when
     * it has switched so often. */
    void (*worker_begin)(struct profile *profile, int worker);
    void (*worker_end)(struct profile *profile, int worker, uint64_t switches);
    /** The worker has no rank that can run, or again one. */
    void (*worker_idle)(struct profile *profile, int worker, bool idle);
    /** The rank leaves the processor: it waits, or others may run. */
    void (*pause)(struct profile *profile, struct vrank *rank, bool waits);
    /** It is about to be woken by another thread, the caller. */
    void (*post)(struct profile *profile, struct vrank *rank,
                 enum vrank_cause cause);
    /** It can run again, as its worker, the caller, knows now. */
    void (*wake)(struct profile *profile, struct vrank *rank,
                 enum vrank_cause cause);
    /** It runs again. */
    void (*resume)(struct profile *profile, struct vrank *rank);
    /** It has waited for the disk for `ns` just now, as it runs. */
    void (*disk)(struct profile *profile, struct vrank *rank, uint64_t ns);
    /** It has ended. On its stack. */
    void (*finish)(struct profile *profile, struct vrank *rank);
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
                             wherever the kernel puts it */
    const bool *urgent; /**< POISE_VRANK_PRIORITY: [V] which ranks go first;
                             NULL: learnt */
    size_t stack_bytes; /**< of each rank; 0: 8 MiB */
    size_t guard_bytes; /**< below each stack, at least; none is smaller than
                             1 MiB */
    uint64_t poll_timeout_ns; /**< after which ranks that only poll are
                                   reported; 0: 5 s */
    /** What each rank does, on its own stack; returns its exit status. */
    int (*body)(struct vrank *rank, void *arg);
    const struct vrank_mpi_ops *mpi;   /**< NULL: none */
    const struct vrank_swap_ops *swap; /**< NULL: no rank has a context */
    const struct vrank_profile_ops *profile_ops; /**< NULL: no profile */
    struct profile *profile;                     /**< for these */
    /** __cxa_get_globals of the C++ library that ranks share: what a worker
     * keeps of its exceptions, saved at each switch. NULL: none. */
    void *(*exceptions)(void);
    /** On each worker before its ranks run. NULL: nothing. */
    void (*thread_start)(int worker, void *arg);
    /** Shows the user a line. NULL: lines are lost. Any thread. */
    void (*say)(const char *line, void *arg);
    /** The job is being ended with a status by vrank_abort: called before the
     * other processes are. NULL: nothing. Any thread. */
    void (*ending)(int status, void *arg);
    /** Ends the process with a status: what vrank_abort calls last. NULL: the
     * run itself ends, as soon as every worker comes to a call of the
     * engine. */
    void (*die)(int status, void *arg);
    void *arg; /**< for all of the above */
};

struct vrank_outcome {
    int status;        /**< exit status: of the lowest rank whose is not 0 */
    bool aborted;      /**< by vrank_abort */
    bool deadlock;     /**< aborted for it: `status` is POISE_VRANK_FAILED, or
                            of a rank that failed before */
    uint64_t switches; /**< from rank to rank, in this process */
};

/** The process of a rank of a job that need not run yet. */
int vrank_placed(const struct vrank_job *job, int rank);
/**
 * Run the job's local ranks until all have ended. One job at a time in a
 * process. On success the outcome is filled in, whatever became of the ranks;
 * an error means that none was started: -ENOMEM, -EINVAL, -EAGAIN (no
 * thread), -EBUSY (a job runs already).
 */
int vrank_run_job(const struct vrank_job *job, struct vrank_outcome *out);

/** The calling worker waited for the disk for `ns` until now, for a context. */
void vrank_waited_for_disk(uint64_t ns);

#endif
