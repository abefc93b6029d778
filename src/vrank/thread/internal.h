/*
 * What the files of room vrank/thread share: the engine of a run.
 */
#ifndef POISE_VRANK_THREAD_INTERNAL_H
#define POISE_VRANK_THREAD_INTERNAL_H

#include "vrank/thread/rank.h"

struct vrank_engine {
    struct vrank_job job; /* with defaults filled in */
    struct vrank_worker *workers;
    struct vrank *ranks;   /* [local_count] */
    struct vrank **locals; /* the same as pointers */
    int local_count;
    int *process_of; /* [V] */
    int *local_of;   /* [V] index into ranks, or -1 */
    void *stacks;    /* one mapping for all */
    size_t stacks_bytes, slot_bytes, stack_bytes; /* a slot: guard, stack */
    size_t promised_bytes;   /* of each stack: what was asked for */
    uint32_t go;             /* atomic: 0 wait, 1 run */
    struct poise_event gate; /* signalled with `go` */
    uint32_t halted;         /* atomic: workers leave */
    uint32_t aborting;       /* atomic: the first that does has set it */
    int status;              /* atomic: what it ends the run with */
    bool aborted, deadlock;  /* written by that one */
    uint64_t failure;        /* atomic: see vrank_failure */
    struct poise_buf waits;  /* worker 0: of other processes, at a deadlock */
    int exited;              /* atomic: workers but the first that are done */
    /* Workers that have nothing to run and wait for nothing but each other
     * (idle.c). Under the lock. */
    struct vrank_spin blocked_lock;
    int blocked;
    /* Serialisation: how many workers compute, and how many want to. */
    uint32_t workers_computing, turn_waiters; /* atomic */
    struct poise_event turn_event;
    uint32_t said; /* atomic: bits of enum vrank_once */
};

extern struct vrank_engine *vrank_engine;

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

/* scheduler.c */
void sched_rank_init(struct vrank *rank, struct vrank_worker *worker,
                     void *top);
/* Run the worker's ranks until they have all ended or the run is halted. */
void sched_worker_run(struct vrank_worker *worker);
/* Put `rank`, which belongs to `worker`, into its inbox and wake it. */
void sched_inbox_push(struct vrank_worker *worker, struct vrank *rank);
/* The end of the rank that runs. */
_Noreturn void sched_leave(struct vrank_worker *worker);
/* Leave a rank of a run that was halted, for ever. */
_Noreturn void sched_stop(struct vrank_worker *worker);
/* What a rank owns in the scheduler; it does not run. */
void sched_rank_free(struct vrank *rank);
/* Whether there is something in the worker's inbox. */
bool sched_inbox_filled(const struct vrank_worker *worker);

/* timer.c */
void timer_add(struct vrank_worker *worker, struct vrank *rank);
void timer_remove(struct vrank_worker *worker, struct vrank *rank);
/* Unpark those whose time has come; when the next one's comes (UINT64_MAX:
 * none). */
uint64_t timer_fire(struct vrank_worker *worker);

/* poll.c: a rank of the worker has polled; look whether all do nothing else. */
void poll_look(struct vrank_worker *worker);

/* deadlock.c: say what ranks wait for, end the job. On worker 0. */
void deadlock_report(void);

/* idle.c: the worker found nothing to run: wait. */
void idle_wait(struct vrank_worker *worker);
/* A worker other than 0 has left its loop for good. */
void idle_exited(void);

/* engine.c: whether the worker may leave: its ranks have ended and, on worker
 * 0, no other process needs this one any more. */
bool engine_done(struct vrank_worker *worker);
/* Ranks of this process that have not ended; no worker may run. */
int engine_left(const struct vrank_engine *engine);
/* The body of a rank; on its own stack. */
void engine_rank_main(struct vrank *rank);
/* Make a worker look around. Any thread. */
void engine_wake(struct vrank_worker *worker);
/* Say `line` (NULL: nothing), end the other processes and this one. Only the
 * first call does anything. */
void engine_abort(int status, const char *line);
/* Let all workers leave. */
void engine_halt(struct vrank_engine *engine);

#endif
