/*
 * What context.c and context_part.c share.
 */
#ifndef POISE_VRANK_CONTEXT_STATE_H
#define POISE_VRANK_CONTEXT_STATE_H

#include "context.h"

#include <pthread.h>

#define CONTEXT_PAGE ((size_t)4096)
#define CONTEXT_HUGE ((size_t)2 << 20)
/** Through which parts of contexts go that are away. */
#define CONTEXT_BOUNCE ((size_t)2 << 20)

/* Bytes for a context that is away. */
struct context_note {
    struct context_note *next;
    size_t offset, bytes;
    char data[];
};

enum context_state { CONTEXT_AWAY, CONTEXT_PRESENT, CONTEXT_GONE };

struct context {
    struct heap heap;          /* of its rank, which alone changes it */
    pthread_mutex_t heap_lock; /* where it has threads */
    int index;
    /* Under the lock. */
    enum context_state state;
    bool busy;   /* somebody moves it, or parts of it */
    bool active; /* its rank runs */
    bool stays;
    int pins;
    uint64_t last_use;
    uint64_t moved[POISE_VRANK_MOVES];
    /* Of whoever has it busy; extents and runs are owned. */
    struct heap_extent *extents; /* of the heap, bytes */
    size_t extent_room;
    struct heap_extent *runs; /* [run_count] what is written, pages */
    size_t run_count, run_room;
    uint64_t *stored; /* bits: pages that lie on disk, others are zero */
    bool is_tracked;  /* what is written since it came in is known */
    int rests;        /* log of how often it is not tracked, */
    int rest_left;    /* and how often still */
    struct context_note *notes, **notes_end; /* owned; oldest first */
};

struct contexts {
    struct context_plan plan;
    bool always;
    int count, threads;
    struct context *items; /* [count]; owned */
    uint64_t *stored;      /* of all of them; owned */
    int pagemap, uffd;     /* -1: not to be had */
    struct context_disk *disk;
    char *mapping; /* owned */
    size_t mapping_bytes;
    char **bounces; /* [threads], each made at first use; owned */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a context is not busy any more, or memory was
                               given back */
    uint64_t used_bytes;    /* of plan.budget_bytes */
    uint64_t note_bytes;    /* of plan.message_bytes */
    uint64_t clock;         /* of last_use */
    bool has_refused;       /* atomic: it was said that memory is used up */
    struct context_sums sums;
};

/* One run in a process, as with the engine. */
extern struct contexts *contexts;

/* The context of the rank that runs, or NULL; the one in which `ptr` lies. */
struct context *context_self(void);
struct context *context_of(const void *ptr);
/* Make sure that a context is present and nobody moves it. Under the lock. */
void context_need(struct contexts *all, struct context *context);
/* `bytes` bytes of a context have moved in the time since `before`. Under the
 * lock. */
void context_count(struct contexts *all, struct context *context,
                   enum poise_vrank_move what, uint64_t bytes, uint64_t before);
/* Nobody has it busy any more. Under the lock. */
void context_free_up(struct contexts *all, struct context *context);
/* Until something has changed. Under the lock. */
void contexts_wait(struct contexts *all);
/* The job ends, with the error in force: what a rank needs cannot be had. */
void context_fail(void);
/* Forget what is kept for a context. Under the lock, or where nobody else is.
 */
void notes_free(struct contexts *all, struct context *context);

/* ---- context_track.c: what has to be written and read --------------------
 */

/* Once there are addresses. -ENOTSUP: what is wanted is not to be had. */
int track_begin(struct contexts *all, enum poise_vrank_tracking wanted);
void track_end(struct contexts *all);
/* Find what must be written of a context that goes, context->runs, and what
 * will be stored then. It is busy. -ENOMEM. */
int track_plan(const struct contexts *all, struct context *context);
/* A context has come in, and is busy: notice what is written from now on. */
void track_arm(const struct contexts *all, struct context *context);
/* Pages from..to are stored, or not. */
void stored_set(struct context *context, size_t from, size_t to, bool stored);
bool stored_get(const struct context *context, size_t page);
/* The next pages from *to on, below `end`, that are stored: *from..*to. False:
 * there are none. */
bool stored_next(const struct context *context, size_t *from, size_t *to,
                 size_t end);

#endif
