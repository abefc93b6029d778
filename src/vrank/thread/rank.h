/*
 * A rank and a worker as they lie in memory, for the rooms whose code runs at
 * each switch or each call of MPI and cannot afford to ask for them. All other
 * rooms ask by thread.h.
 */
#ifndef POISE_VRANK_RANK_H
#define POISE_VRANK_RANK_H

#include "vrank/thread/thread.h"

#include <pthread.h>

struct load_rank;
struct profile_rank;

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
    void *mpi;             /* MPI's state */

    struct context *context;   /* its memory, where that is swapped; or NULL */
    struct load_rank *program; /* that it runs; NULL: a function of ours */
    const char *why;           /* of its park; NULL while it runs */
    uint64_t deadline_ns;      /* of its park */
    int timer;                 /* its place in the worker's timers, or -1 */
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

/* What a worker has to look after besides its ranks: tested as one word. */
enum {
    VRANK_WATCH_TURN = 1,    /* it may compute: the policy of serialisation */
    VRANK_WATCH_ORDER = 2,   /* ranks that wake are not simply the last */
    VRANK_WATCH_PROFILE = 4, /* where time goes */
    VRANK_WATCH_CLOCK = 8,   /* messages of other processes, by time */
    VRANK_WATCH_FIBERS = 16, /* AddressSanitizer wants to be told of stacks */
    VRANK_WATCH_TRACE = 32,  /* a trace is in force since this worker began */
    VRANK_WATCH_NEXT = VRANK_WATCH_TURN | VRANK_WATCH_PROFILE |
                       VRANK_WATCH_CLOCK | VRANK_WATCH_FIBERS |
                       VRANK_WATCH_TRACE,
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
    uint64_t slice_ticks; /* since when its rank runs, if it is recorded */
    uint64_t wakes;       /* of its ranks, but by time; and polls that found
                             something */
    uint32_t cause;       /* enum vrank_cause, of what it does */
    /* Ranks that only poll (poll.c). */
    uint64_t polls, polls_seen, polls_wakes;
    uint64_t poll_due, poll_cpu_ns; /* when to look, in ticks; then */
    uint64_t poll_since_ns;         /* atomic; 0: there is more to it */
    unsigned poll_looks;            /* in a row that saw nothing but polls */
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

extern _Thread_local struct vrank_worker *vrank_here
    __attribute__((tls_model("initial-exec")));

#endif
