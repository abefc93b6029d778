/*
 * What the files of room vrank/context share.
 */
#ifndef POISE_VRANK_CONTEXT_INTERNAL_H
#define POISE_VRANK_CONTEXT_INTERNAL_H

#include "context.h"
#include "vrank/thread/rank.h"

#include <pthread.h>

#define CONTEXT_PAGE ((size_t)4096)
#define CONTEXT_HUGE ((size_t)2 << 20)
/** Memory of a worker through which parts of contexts go to and from disk. */
#define CONTEXT_BOUNCE ((size_t)2 << 20)

/** The parts that a worker has under way, and the most bytes of one. */
enum { TRANSFERS = 32 };
#define TRANSFER_BYTES (CONTEXT_BOUNCE / TRANSFERS)

/* Bytes written to a context that is swapped out, to be put in when it comes.
 */
struct pending_write {
    struct pending_write *next;
    size_t offset, bytes, room;
    char data[];
};

/* See swap.c for what changes them. */
enum context_state { CONTEXT_SWAPPED_OUT, CONTEXT_RESIDENT, CONTEXT_RETIRED };

struct context {
    struct heap heap;          /* of its rank, which alone changes it */
    pthread_mutex_t heap_lock; /* where it has threads */
    int index;
    /* Under the lock. */
    enum context_state state;
    bool busy;   /* a thread moves it, or parts of it: its owner */
    bool active; /* its rank runs */
    bool keeps_resident;
    bool is_arriving;   /* there is room for it, and it comes */
    bool is_prefetched; /* it came, and was not used yet */
    int pins;
    int parts; /* atomic; that are under way from and to disk */
    uint64_t last_use;
    uint64_t moved[POISE_VRANK_MOVES];
    /* Of the thread that has it busy; extents and runs are owned. */
    struct heap_extent *extents; /* of the heap, bytes */
    size_t extent_room;
    struct heap_extent *runs; /* [run_count] what is written, pages */
    size_t run_count, run_room;
    uint64_t *stored; /* bits: pages that lie on disk, others are zero */
    bool is_tracked;  /* what is written since it came in is known */
    bool is_split;    /* most of its huge pages are not huge any more */
    int backoff;      /* log of how often it is not tracked, */
    int backoff_left; /* and how often still */
    struct pending_write *pending, **pending_end; /* owned; oldest first */
    bool pending_overlap; /* some overlap: the later one counts */
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
    struct transfer_queue *queues; /* [threads]; owned */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a context is not busy any more, or memory was
                               given back */
    struct prefetcher
        *prefetchers;     /* [threads], or NULL: none is prefetched; owned */
    pthread_cond_t asked; /* one is wanted early, or the run ends */
    bool ends;
    uint64_t used_bytes;    /* of plan.budget_bytes */
    uint64_t pending_bytes; /* of plan.message_bytes */
    uint64_t clock;         /* of last_use */
    struct context_sums sums;
};

/* One run in a process, as with the engine. */
extern struct contexts *contexts;

/* The context of the rank that runs, or NULL: also while it is suspended, when
 * progress is made on its stack and its memory may be gone; the one in which
 * `ptr` lies. */
struct context *context_self(void);
struct context *context_of(const void *ptr);
/* ---- swap.c -------------------------------------------------------------- */

/* Make a context resident and not busy. Under the lock, which is let go
 * meanwhile. */
void context_need(struct contexts *all, struct context *context);
/* Make room for so many bytes, and take them; *victim: the last that had to go
 * for it, or NULL. Without `waits` other threads are not waited for. Under the
 * lock, which is let go meanwhile. False: there is none, or the job ends. */
bool contexts_room(struct contexts *all, uint64_t bytes, bool waits,
                   struct context **victim);
/* Bring a context that is busy and swapped out into memory, for which there is
 * room: into the pages of `victim`, if it is not NULL. Under the lock, which is
 * let go meanwhile. False: the job ends. */
bool context_fill(struct contexts *all, struct context *context,
                  struct context *victim);
/* `bytes` bytes of a context have moved in the time since `before`. Under the
 * lock. */
void context_count(struct contexts *all, struct context *context,
                   enum poise_vrank_move what, uint64_t bytes, uint64_t before);
/* Swap a context out that is resident, not busy, not active and not pinned. It
 * is busy then, a victim, and still has its pages: for pages_take, or for
 * victim_drop. Under the lock, which is let go meanwhile. False: the job
 * ends. */
bool context_evict(struct contexts *all, struct context *context);
/* Give the pages of a victim back. Under the lock, which is let go
 * meanwhile. NULL: there is none. */
void victim_drop(struct contexts *all, struct context *victim);
/* For others to read without the lock. */
void context_set_state(struct context *context, enum context_state state);
bool context_is_resident(const struct context *context);
/* It is not busy any more. Under the lock. */
void context_free_up(struct contexts *all, struct context *context);
/* Until something has changed. Under the lock. */
void contexts_wait(struct contexts *all);
/* Until nothing of a context that is busy is under way. Under the lock. */
void contexts_wait_parts(struct contexts *all, const struct context *context);
/* The job ends, with the error in force: what a rank needs cannot be had. */
void context_fail(void);
/* Free the pending writes of a context. Under the lock, or where no other
 * thread is. */
void pending_free(struct contexts *all, struct context *context);

/* ---- prefetch.c ---------------------------------------------------------- */

/* Threads, one for each worker. -ENOMEM. */
/* The calling worker will need it next: it may come. */
void context_prefetch(struct context *context);
int prefetch_begin(struct contexts *all);
void prefetch_end(struct contexts *all);

/* ---- transfer.c ---------------------------------------------------------- */

int transfer_begin(struct contexts *all);
void transfer_end(struct contexts *all);
/* Memory of the calling worker, CONTEXT_BOUNCE; its parts are over. NULL: there
 * is none, with the error set. */
char *transfer_memory(struct contexts *all);
/* Whether nothing of the calling worker's is under way; wait until it is so: 0,
 * or the first error. */
bool transfer_is_empty(const struct contexts *all);
int transfer_finish(struct contexts *all);
/* Begin to read bytes, all of them on disk, of a context that is swapped
 * out and busy. -ENOMEM. */
int transfer_read(struct contexts *all, struct context *context, size_t offset,
                  char *data, size_t bytes);
/* Bytes that go to `offset` of a context. */
struct write_part {
    size_t offset, bytes;
    const char *data;
};
/* Begin to write low..high, whole pages, of a context that is swapped out and
 * busy. They are made of `count` parts, of which the first stays where it is
 * until all is over. -ENOMEM. */
int transfer_write(struct contexts *all, struct context *context, size_t low,
                   size_t high, const struct write_part *parts, int count);

/* ---- pages.c --------------------------------------------------------- */

/* Huge pages, if there are any, move twice as fast. */
void pages_advise(const struct heap *heap);
/* Give the memory of a context that has gone back. */
void pages_drop(struct context *context);
/* A context that is busy and comes gets the pages of one that has gone; those
 * that are not on disk are zero. False with errno: it has none. */
bool pages_take(const struct contexts *all, struct context *context,
                struct context *victim);

/* ---- dirty.c --------------------------------------------------------- */

/* Once there are addresses. -ENOTSUP: what is wanted is not to be had. */
int dirty_begin(struct contexts *all, enum poise_vrank_tracking wanted);
void dirty_end(struct contexts *all);
/* Find what must be written of a context that goes, context->runs, and what
 * will be stored then. It is busy. -ENOMEM. */
int dirty_plan(const struct contexts *all, struct context *context);
/* The pages of a context, which is busy, were those of another. */
void dirty_moved(const struct contexts *all, const struct context *context);
/* A context has come in, and is busy: notice what is written from now on. */
void dirty_watch(const struct contexts *all, struct context *context);
/* Pages from..to are stored, or not. */
void stored_set(struct context *context, size_t from, size_t to, bool stored);
bool stored_get(const struct context *context, size_t page);
/* The next pages from *to on, below `end`, that are stored: *from..*to. False:
 * there are none. */
bool stored_next(const struct context *context, size_t *from, size_t *to,
                 size_t end);

#endif
