/*
 * What context.c and context_part.c share.
 */
#ifndef POISE_VRANK_CONTEXT_STATE_H
#define POISE_VRANK_CONTEXT_STATE_H

#include "context.h"
#include "vrank/thread/rank.h"

#include <pthread.h>

#define CONTEXT_PAGE ((size_t)4096)
#define CONTEXT_HUGE ((size_t)2 << 20)
/** Through which parts of contexts go that are away. */
#define CONTEXT_BOUNCE ((size_t)2 << 20)

/** The parts that a worker has under way, and the most bytes of one. */
enum { FLOW_ENTRIES = 32 };
#define FLOW_BYTES (CONTEXT_BOUNCE / FLOW_ENTRIES)

/* Bytes for a context that is away. */
struct context_note {
    struct context_note *next;
    size_t offset, bytes, room;
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
    bool is_arriving; /* there is room for it, and it comes */
    bool is_ahead;    /* it came, and was not used yet */
    int pins;
    int parts; /* atomic; that are under way from and to disk */
    uint64_t last_use;
    uint64_t moved[POISE_VRANK_MOVES];
    /* Of whoever has it busy; extents and runs are owned. */
    struct heap_extent *extents; /* of the heap, bytes */
    size_t extent_room;
    struct heap_extent *runs; /* [run_count] what is written, pages */
    size_t run_count, run_room;
    uint64_t *stored; /* bits: pages that lie on disk, others are zero */
    bool is_tracked;  /* what is written since it came in is known */
    bool is_split;    /* most of its huge pages are not huge any more */
    int rests;        /* log of how often it is not tracked, */
    int rest_left;    /* and how often still */
    struct context_note *notes, **notes_end; /* owned; oldest first */
    bool notes_meet; /* some overlap: the later one counts */
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
    struct flow *flows; /* [threads]; owned */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a context is not busy any more, or memory was
                               given back */
    struct ahead *ahead;    /* [threads], or NULL: nobody comes early; owned */
    pthread_cond_t asked;   /* one is wanted early, or the run ends */
    bool ends;
    uint64_t used_bytes; /* of plan.budget_bytes */
    uint64_t note_bytes; /* of plan.message_bytes */
    uint64_t clock;      /* of last_use */
    struct context_sums sums;
};

/* One run in a process, as with the engine. */
extern struct contexts *contexts;

/* The context of the rank that runs, or NULL; the one in which `ptr` lies. */
struct context *context_self(void);
struct context *context_of(const void *ptr);
/* Make sure that a context is present and nobody moves it. Under the lock. */
void context_need(struct contexts *all, struct context *context);
/* Make room for so many bytes, and take them; *shell: the last that had to go
 * for it, or NULL. Without `waits` nobody is waited for. Under the lock, which
 * is let go meanwhile. False: there is none, or the job ends. */
bool contexts_room(struct contexts *all, uint64_t bytes, bool waits,
                   struct context **shell);
/* Bring a context that is busy and away into memory, for which there is room:
 * into the pages of `shell`, if it is not NULL. Under the lock, which is let
 * go meanwhile. False: the job ends. */
bool context_fill(struct contexts *all, struct context *context,
                  struct context *shell);
/* `bytes` bytes of a context have moved in the time since `before`. Under the
 * lock. */
void context_count(struct contexts *all, struct context *context,
                   enum poise_vrank_move what, uint64_t bytes, uint64_t before);
/* Nobody has it busy any more. Under the lock. */
void context_free_up(struct contexts *all, struct context *context);
/* Until something has changed. Under the lock. */
void contexts_wait(struct contexts *all);
/* Until nothing of a context that is busy is under way. Under the lock. */
void contexts_wait_parts(struct contexts *all, const struct context *context);
/* The job ends, with the error in force: what a rank needs cannot be had. */
void context_fail(void);
/* Forget what is kept for a context. Under the lock, or where nobody else is.
 */
void notes_free(struct contexts *all, struct context *context);

/* ---- context_ahead.c: contexts that come before they are needed --------- */

/* Threads, one for each worker. -ENOMEM. */
/* The calling worker will need it next: it may come. */
void context_prefetch(struct context *context);
int ahead_begin(struct contexts *all);
void ahead_end(struct contexts *all);

/* ---- context_flow.c: parts that are under way --------------------------- */

int flow_begin(struct contexts *all);
void flow_end(struct contexts *all);
/* Memory of the calling worker, CONTEXT_BOUNCE; its parts are over. NULL: there
 * is none, with the error set. */
char *flow_memory(struct contexts *all);
/* Whether nothing of the calling worker's is under way; wait until it is so: 0,
 * or the first error. */
bool flow_is_empty(const struct contexts *all);
int flow_finish(struct contexts *all);
/* Begin to read bytes, all of them on disk, of a context that is away and
 * busy. -ENOMEM. */
int flow_read(struct contexts *all, struct context *context, size_t offset,
              char *data, size_t bytes);
/* Bytes that go to `offset` of a context. */
struct flow_part {
    size_t offset, bytes;
    const char *data;
};
/* Begin to write low..high, whole pages, of a context that is away and busy.
 * They are made of `count` parts, of which the first stays where it is until
 * all is over. -ENOMEM. */
int flow_write(struct contexts *all, struct context *context, size_t low,
               size_t high, const struct flow_part *parts, int count);

/* ---- context_pages.c: pages that go from one to another ----------------- */

/* Huge pages, if there are any, move twice as fast. */
void pages_advise(const struct heap *heap);
/* Give the memory of a context that has gone back. */
void pages_drop(struct context *context);
/* A context that is busy and comes gets the pages of one that has gone; those
 * that are not on disk are zero. False with errno: it has none. */
bool pages_take(const struct contexts *all, struct context *context,
                struct context *shell);

/* ---- context_track.c: what has to be written and read ------------------- */

/* Once there are addresses. -ENOTSUP: what is wanted is not to be had. */
int track_begin(struct contexts *all, enum poise_vrank_tracking wanted);
void track_end(struct contexts *all);
/* Find what must be written of a context that goes, context->runs, and what
 * will be stored then. It is busy. -ENOMEM. */
int track_plan(const struct contexts *all, struct context *context);
/* The pages of a context, which is busy, were those of another. */
void track_moved(const struct contexts *all, const struct context *context);
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
