/*
 * poise/task.h - a distributed work-stealing pool of tasks.
 *
 * A task is a string of bytes that a callback of the user runs; running it
 * may add more tasks. Tasks start on any rank, are run by the threads of any
 * rank, and the pool ends when none is left anywhere. A pool works inside one
 * process without MPI, or over a world of ranks.
 *
 * Locally tasks run depth first; the oldest, which are likely the largest,
 * are given away. Source: tree-walk II.B (central), IV.B (random), IV.C
 * (near), IV.D (hybrid); termination after Safra (EWD998), because the rule
 * of the paper (EWD840) assumes that no message is in flight.
 *
 * Done so far and still to do: a running task publishes its progress with
 * poise_task_commit. At every moment the committed results together with the
 * queued tasks and the rests of the running ones are the whole job; this is
 * what a checkpoint records: a consistent snapshot of all ranks, taken without
 * a pause, by Lai-Yang colouring and counting, so messages may be reordered.
 */
#ifndef POISE_TASK_H
#define POISE_TASK_H

#include <poise/base.h>
#include <poise/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_pool;
/** One thread that runs tasks, as callbacks see it. */
struct poise_worker;

enum poise_policy {
    POISE_POLICY_CENTRAL,      /**< rank 0 hands out `batch` tasks a message */
    POISE_POLICY_CENTRAL_KEEP, /**< the same, a worker keeps one it made */
    POISE_POLICY_RANDOM,       /**< DRQS: ask a random rank */
    POISE_POLICY_NEAR,         /**< PA-DRQS: near ones first; only the root of
                                    a unit asks outside it */
    POISE_POLICY_HYBRID,       /**< H-DRQS: NEAR, with threads that share one
                                    queue in each rank */
};
/** How much of its queue an asked rank gives away. */
enum poise_split { POISE_SPLIT_RANDOM, POISE_SPLIT_HALF };

/** "central", "central-keep-one", ... and "random", "half"; NULL-terminated,
 * indexed by the enums. */
POISE_API extern const char *const poise_policy_names[];
POISE_API extern const char *const poise_split_names[];

struct poise_pool_stats;

/** The user's side. Unused hooks are NULL. All get `arg`. */
struct poise_pool_hooks {
    /**
     * Run one task (borrowed bytes, 8-aligned). 0, or negative to stop the
     * pool with that error on all ranks. Any worker thread.
     */
    int (*run)(struct poise_worker *worker, const void *task, size_t len,
               void *arg);

    /** A task's portable form, for another process or a file: append it to
     * `out`. The task stays valid. NULL: its bytes are portable. Called by
     * any thread, possibly while another runs the same task's rest. */
    int (*pack)(const void *task, size_t len, struct poise_buf *out, void *arg);
    /** As pack, for a checkpoint: the task stays here too, and this is what a
     * resume unpacks instead. The workers' locks are held, and `save` follows
     * before they are released. NULL: pack. */
    int (*record)(const void *task, size_t len, struct poise_buf *out,
                  void *arg);
    /** The reverse: append the local form to `out`. */
    int (*unpack)(const void *packed, size_t len, struct poise_buf *out,
                  void *arg);
    /** This local task will not be run here (it was given away, spilled, or
     * the pool stopped): release what it refers to. What was packed may have
     * been unpacked and run by another thread by then. Not called for a task
     * that was given to `run`: what it refers to is run's to release, after
     * poise_task_commit(worker, NULL, 0), because a checkpoint may pack the
     * task, or its committed rest, until then. */
    void (*drop)(const void *task, size_t len, void *arg);

    /** Fold what `worker` did since its last commit into the committed
     * results. Under the worker's lock; must not block. */
    void (*commit)(struct poise_worker *worker, void *arg);
    /** Append all committed results of this rank to `out` (for a checkpoint).
     * No commit is running meanwhile; the workers' locks are held, as for
     * commit, so it must not call the pool. */
    int (*save)(struct poise_buf *out, void *arg);
    /** After save, outside all locks: make durable what save referred to
     * (flush and sync output files). */
    int (*settle)(void *arg);
    /** Add saved results to this rank's; called before the first task, zero
     * or more times, `len` bytes as one save() of `from_rank` of
     * `from_size` wrote them. That rank's tasks are unpacked next, and what was
     * sent to it (poise_task_send) goes to this one. */
    int (*load)(const void *saved, size_t len, int from_rank, int from_size,
                void *arg);

    /** Bytes sent by poise_task_emit arrive, on rank 0: whole pieces, each
     * sender's in its order, one at a time. */
    int (*deliver)(int source, const void *data, size_t len, void *arg);
    /** Bytes sent by poise_task_send arrive. Acts like a task that cannot be
     * stolen: may add tasks, and the run does not end before it. */
    int (*receive)(struct poise_worker *worker, int source, const void *data,
                   size_t len, void *arg);
    /** How much this rank has done so far, in units of the user's: asked now
     * and then on the caller's thread, while the workers work. */
    uint64_t (*done)(void *arg);
    /** About ten times a second, on the caller's thread; local figures, but
     * for stats->sum. Where rank 0 has this hook the others send it theirs. */
    void (*progress)(const struct poise_pool_stats *stats, void *arg);
    void *arg;
};

struct poise_pool_options {
    enum poise_policy policy;
    enum poise_split split;
    size_t batch;     /**< CENTRAL: tasks per message; 0: 1, as in the paper */
    unsigned threads; /**< per rank; 0: 1 (1 under a world of several ranks
                           for all policies but HYBRID, and where
                           poise_world_threads_allowed says no) */
    /** If above `threads`: how many tasks may be in flight when measuring
     * shows that more than `threads` pay (workers that wait for a disk or a
     * server leave the processor free); adapts up and down. */
    unsigned threads_max;
    size_t queue_bytes;     /**< queued per rank before spilling; 0: 8 MiB */
    const char *spill_dir;  /**< NULL: $TMPDIR or /var/tmp */
    const char *checkpoint; /**< commit record's path; NULL: none */
    uint64_t checkpoint_ns; /**< interval; 0: 30 s */
    const char *resume;     /**< commit record to start from; NULL: none */
    /** Of poise_pool_checkpoint_lock, if the caller's job goes on after the
     * run; NULL: the run locks and unlocks. Borrowed. */
    const struct poise_checkpoint_lock *lock;
    /** Bytes that identify the job: stored in checkpoints and compared on
     * resume (-EINVAL if they differ). */
    const void *job;
    size_t job_bytes;
    uint64_t seed; /**< of victims and random splits; 0: from the system */
    /** Set to a signal number, by a signal handler say, it stops the pool:
     * with a last checkpoint if asked for, and -EINTR on all ranks. */
    const volatile int *interrupt;
    uint64_t progress_ns; /**< between calls of that hook; 0: 0.1 s */
};

/** Collective over `world` (NULL: one process, no communication). The world
 * is borrowed until destroy. `hooks` and `options` are copied. */
POISE_API int poise_pool_create(struct poise_world *world,
                                const struct poise_pool_options *options,
                                const struct poise_pool_hooks *hooks,
                                struct poise_pool **out);
POISE_API void poise_pool_destroy(struct poise_pool *pool);

/** Put a first task, before the run; on any rank. Local. */
POISE_API int poise_pool_add(struct poise_pool *pool, const void *task,
                             size_t len);

/**
 * Run until nothing is left. Collective; the caller's thread communicates,
 * and works too if `threads` is 1. Returns on all ranks alike: 0 at the end,
 * the positive value of poise_task_stop, -EINTR after `interrupt`, or the
 * error of the first rank that failed.
 */
POISE_API int poise_pool_run(struct poise_pool *pool);

/* ---- inside callbacks --------------------------------------------------- */

/** 0..poise_pool_workers-1, for arrays of per-worker state. */
POISE_API unsigned poise_worker_index(const struct poise_worker *worker);
POISE_API struct poise_pool *poise_worker_pool(struct poise_worker *worker);
/** Upper bound of worker indices of this rank, fixed at create. */
POISE_API unsigned poise_pool_workers(const struct poise_pool *pool);

/** The number of the checkpoint from which this run was resumed, 0: none. All
 * ranks know it before the first hook is called; it is greater than what
 * the run that wrote that checkpoint was told. */
POISE_API uint64_t poise_pool_epoch(const struct poise_pool *pool);

/**
 * Add a task; it becomes visible at the next commit, and runs (here) before
 * what was added earlier. `footprint_bytes`: memory it holds besides its
 * bytes, for the limit on the queue.
 */
POISE_API int poise_task_add(struct poise_worker *worker, const void *task,
                             size_t len, size_t footprint_bytes);

/**
 * Everything done by the running task so far is final; `rest` (copied) is
 * what is left of it, as a task that a resume could run instead (NULL:
 * nothing). Returning from run is a commit with nothing left.
 */
POISE_API int poise_task_commit(struct poise_worker *worker, const void *rest,
                                size_t len);

/** To be called now and then by long tasks: gives the pool a chance to
 * communicate (it looks at the clock only). 0, or non-zero if the task should
 * commit and return early because the pool stops. */
POISE_API int poise_task_poll(struct poise_worker *worker);
/** Whether a thread here or another rank is out of work: a good
 * moment to split. One load. */
POISE_API bool poise_task_wanted(const struct poise_worker *worker);

/** Stop the pool; `value` > 0 is returned by poise_pool_run on all ranks (the
 * lowest rank's if several stop). */
POISE_API void poise_task_stop(struct poise_worker *worker, int value);

/** Send a piece of output to rank 0's `deliver`. Blocks (still communicating)
 * while too much is under way. At least once if the job is resumed. */
POISE_API int poise_task_emit(struct poise_worker *worker, const void *data,
                              size_t len);
/** Send bytes to the hook `receive` of `rank`, which may be this one, at the
 * next commit: exactly once, as a task. A resume on another number of ranks
 * delivers them to rank % size. */
POISE_API int poise_task_send(struct poise_worker *worker, int rank,
                              const void *data, size_t len);

/** Account nanoseconds of this task to a user's category (0..7), for the
 * profile. */
POISE_API void poise_task_account(struct poise_worker *worker,
                                  unsigned category, uint64_t ticks);

/* ---- what it did -------------------------------------------------------- */

enum poise_pool_time { POISE_TIME_BUSY, POISE_TIME_IDLE, POISE_TIME_COMM };

struct poise_worker_stats {
    uint64_t tasks, stolen; /**< run here; of which taken from a neighbour */
    uint64_t busy_ns, idle_ns, comm_ns;
    uint64_t account_ns[8]; /**< poise_task_account */
};

/** What a rank and, on rank 0 of a pool with a progress hook, all ranks have
 * done and have before them, as far as is known there. */
struct poise_pool_sum {
    uint64_t done;         /**< hook done; 0 without it */
    uint64_t tasks_queued; /**< at this moment */
    uint64_t active;       /**< workers in flight at this moment */
};

/** Of one rank. */
struct poise_pool_stats {
    int rank, size;
    uint64_t *messages, *bytes; /**< sent, per destination rank [size] */
    uint64_t steal_asked, steal_got, steal_refused, tasks_given;
    uint64_t tasks_queued; /**< at this moment */
    uint64_t spilled_tasks, spilled_bytes;
    uint64_t token_rounds, checkpoints;
    uint64_t wall_ns; /**< from the start of the run */
    unsigned active;  /**< workers in flight at this moment */
    unsigned active_most;
    struct poise_pool_sum sum; /**< as of the last time that hook progress
                                    was called */
    struct poise_worker_stats *workers; /**< [worker_count] */
    unsigned worker_count;
};

/** This rank's, owned by the pool, updated until the run ends. */
POISE_API const struct poise_pool_stats *
poise_pool_stats(struct poise_pool *pool);

/** All ranks' on rank 0 ([size], elsewhere NULL). Collective, after the run.
 * Free with poise_pool_stats_free. */
POISE_API int poise_pool_stats_gather(struct poise_pool *pool,
                                      struct poise_pool_stats **out);
POISE_API void poise_pool_stats_free(struct poise_pool_stats *all, int size);

#ifdef __cplusplus
}
#endif

#endif
