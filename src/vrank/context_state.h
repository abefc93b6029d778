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
    /* What lies on disk: of whoever has it busy. */
    struct heap_extent *extents; /* owned */
    size_t extent_room;
    int extent_count;
    struct context_note *notes, **notes_end; /* owned; oldest first */
};

struct contexts {
    struct context_plan plan;
    bool always;
    int count, threads;
    struct context *items; /* [count]; owned */
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
/* Nobody has it busy any more. Under the lock. */
void context_free_up(struct contexts *all, struct context *context);
/* Until something has changed. Under the lock. */
void contexts_wait(struct contexts *all);
/* The job ends, with the error in force: what a rank needs cannot be had. */
void context_fail(void);
/* Forget what is kept for a context. Under the lock, or where nobody else is.
 */
void notes_free(struct contexts *all, struct context *context);

#endif
