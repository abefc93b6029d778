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

/*
 * An extent is a part of a heap that comes and goes by itself:
 * all->extent_bytes of addresses, at a multiple of that (the last may be
 * shorter).
 *
 *   FRESH     nothing of it lies on disk; anonymous memory, of which no page is
 *             there, so that it is zero
 *   RESIDENT  anonymous memory; pages that were not written since it came are
 *             clean where is_tracked, all others dirty
 *   AWAY      it lies on disk. Its place in the scratch file is mapped there,
 *             MAP_PRIVATE, and no page of that is in memory
 *   VISITED   the same, but pages of it were touched: those that were only read
 *             are clean, and the kernel's; those that were written are
 *             anonymous, and dirty
 *
 *   SHARED    it lies on disk, and its place there is mapped, MAP_SHARED: the
 *             kernel pages it. That is for what a rank has beyond the memory
 *             for one; it counts for none, but in the page cache
 *
 *   FRESH -> RESIDENT, AWAY -> VISITED   found at the end of a phase
 *                                        (extents_look)
 *   AWAY, VISITED -> RESIDENT            extents_bring, in bulk
 *   RESIDENT, VISITED -> AWAY or FRESH   extents_drop, after extents_write
 *   FRESH -> AWAY                        extents_expose, before a part of it is
 *                                        written to disk
 *   RESIDENT, AWAY, SHARED -> FRESH      extents_look: the heap gave it back
 *   FRESH -> SHARED                      extents_share
 *
 * Addresses of a heap can be touched at any time: the kernel serves what is
 * away from the file, in system calls, too. That costs a fault for each page;
 * so what is expected comes in bulk, and faults are for what is not.
 */
enum extent_state {
    EXTENT_FRESH,
    EXTENT_RESIDENT,
    EXTENT_AWAY,
    EXTENT_VISITED,
    EXTENT_SHARED
};
struct extent {
    uint8_t state;        /* enum extent_state */
    bool is_tracked;      /* what is written since it came in is known, */
    bool is_split;        /* which has made small pages of its huge one */
    bool is_scattered;    /* its pages do not lie beside each other in memory */
    uint8_t backoff;      /* log of how often it is not tracked, */
    uint8_t backoff_left; /* and how often still */
    uint32_t pages;       /* of memory that it counts for */
    uint32_t seen;        /* of extents_look: pages that are there */
};

/* Extents that one thread moves together. */
enum { EXTENT_BATCH = 16 };
struct extent_list {
    size_t at[EXTENT_BATCH];
    int slots[EXTENT_BATCH]; /* a frame for each; -1: none */
    bool warm[EXTENT_BATCH]; /* that have got pages: extents_drop; or had */
    int count;
};

/* What a rank touches from one call that waits to the next: see phase.c. */
struct phase;
struct phase_model;

struct context {
    struct heap heap;          /* of its rank, which alone changes it */
    pthread_mutex_t heap_lock; /* where it has threads */
    int index;
    /* Under the lock. */
    bool busy;   /* a thread moves it, or parts of it: its owner */
    bool active; /* its rank runs */
    bool keeps_resident;
    bool is_retired;
    bool is_prefetched; /* it came, and was not used yet */
    int opens;          /* who may touch any of it: its rank, and pins */
    int holds;          /* who copies from or to what is in memory of it */
    int parts;          /* atomic; that are under way from and to disk */
    uint64_t held;      /* bytes in memory, those of its extents */
    uint64_t lease;     /* that it may touch beside while it is open */
    uint64_t shared;    /* bytes in use of its extents that are SHARED, */
    int shares;         /* and how many these are */
    int missing; /* atomic; extents of its next phase that are not RESIDENT */
    int list;    /* the list in which it stands; -1: none */
    struct context *next, *prev;
    uint64_t moved[POISE_VRANK_MOVES];
    struct phase *phases; /* [phase_count]; owned */
    int phase_count;
    struct phase *phase; /* that it is in, or will be; NULL: not known */
    uint64_t phase_uses; /* of all of them */
    uintptr_t origin;    /* of its program: see context_origin */
    uintptr_t site;      /* the call that it waits in, or waited */
    int waits;           /* how often it has in that */
    /* See quick.c: of its worker while that is quick, else under the lock. */
    bool quick, unseen, ran;
    int worker;                 /* of its rank */
    uint64_t need;              /* what it may touch beside what is there */
    struct phase *unseen_phase; /* in which it may have */
    /* Of the thread that has it busy; ranges and runs are owned. */
    struct extent *extents;     /* those of all its addresses */
    size_t extent_count;        /* behind it all were FRESH, ever */
    struct heap_extent *ranges; /* [range_count] in use by the heap, bytes */
    size_t range_room;
    int range_count;
    uint64_t range_changes;   /* of the heap, at that time */
    uint64_t range_drops;     /* the same, when its pages were looked at */
    struct heap_extent *runs; /* [run_count] what is written, pages */
    size_t run_count, run_room;
    uint64_t *stored; /* bits: pages that lie on disk, others are zero */
    struct pending_write *pending, **pending_end; /* owned; oldest first */
    bool pending_overlap; /* some overlap: the later one counts */
};

/* Memory of an extent that belongs to none: see frame.c. */
struct frames {
    char *area;       /* owned */
    size_t bytes;     /* of one */
    int count;        /* how many there are addresses for */
    int *warm, *cold; /* [count] with and without pages; owned */
    int warm_count, cold_count;
    int group; /* that are made of a huge page together; 0: none */
};

struct contexts {
    struct context_plan plan;
    bool always, whole;
    int count, threads;
    size_t extent_bytes, extent_count; /* for each context */
    struct context *items;             /* [count]; owned */
    struct extent *extents;            /* of all of them; owned */
    uint64_t *stored;                  /* the same; owned */
    int pagemap, uffd;                 /* -1: not to be had */
    bool scans;                        /* pagemap can be searched */
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
    struct quick *quicks;       /* [threads], or NULL: no switch is; owned */
    int claims;                 /* atomic; 1: none may be now */
    uint64_t gates;             /* atomic; for the thread sanitizer */
    struct phase_model *models; /* what ranks learn from each other; owned */
    uint64_t quick_ticks;
    struct frames frames;
    /* Contexts that are not open and have memory, oldest first: those that
     * have some that they do not need next, and the others. */
    struct context *oldest[2], *newest[2];
    int busy_count, open_count; /* of contexts that may go later */
    uint64_t used_bytes;    /* of budget_most: held, leased and pending, less
                               what frames have */
    uint64_t leased_bytes;  /* of that, leases */
    uint64_t pending_bytes; /* the same, and of plan.message_bytes */
    uint64_t taken_bytes;   /* the same, of context_memory_take */
    uint64_t memory_bytes;  /* of the whole process; see budget.c */
    uint64_t base_bytes;    /* of that, before there were contexts; or 0 */
    uint64_t file_bytes;    /* the same, and for pages of files */
    uint64_t lent_bytes;    /* beside plan.budget_bytes; */
    uint64_t owed_bytes;    /* or missing from them: all else needs more */
    uint64_t look_due, look_ticks;
    int status; /* a file; -1: not to be had */
    struct context_sums sums;
};

/* One run in a process, as with the engine. */
extern struct contexts *contexts;

/* The context of the rank that runs, or NULL: also while it is suspended, when
 * progress is made on its stack and its memory may be gone; the one in which
 * `ptr` lies. */
struct context *context_self(void);
struct context *context_of(const void *ptr);

/* What may be in memory of one, if all of it is touched. */
static inline uint64_t context_most(const struct context *context)
{
    uint64_t charged = context->heap.charged;

    return charged > context->shared ? charged - context->shared : 0;
}

/* ---- swap.c -------------------------------------------------------------- */

/* Any of a context may be touched from now on, by the caller: all that is
 * expected of its next phase comes, if `expected`, and what is pending. Under
 * the lock, which is let go meanwhile. */
void context_open(struct contexts *all, struct context *context, bool expected);
/* No more, by this caller, its rank that waits if it `suspends`. The last one
 * finds what was touched. Under the lock, which is let go meanwhile. */
void context_close(struct contexts *all, struct context *context,
                   bool suspends);
/* Bring what is expected, and what is pending, of a context that is busy and
 * not open. Under the lock, which is let go meanwhile. False: there is no room
 * without waiting for other threads, where it is not to wait; or the job ends.
 */
bool context_bring(struct contexts *all, struct context *context, bool expected,
                   bool waits);
/* Swap all of a context out that is busy and not open. Under the lock, which is
 * let go meanwhile. */
void context_evict(struct contexts *all, struct context *context);
/* Make room for the frames of a list, or none, and bytes, and take both; for a
 * context that is busy or open. Without `waits` other threads are not waited
 * for. Under the lock, which is let go meanwhile. False: there is none, or the
 * job ends. */
bool contexts_room(struct contexts *all, const struct context *self,
                   struct extent_list *frames, uint64_t bytes, bool waits);
/* `bytes` bytes of a context have moved in the time since `before`. Under the
 * lock. */
void context_count(struct contexts *all, struct context *context,
                   enum poise_vrank_move what, uint64_t bytes, uint64_t before);
/* Put it behind all others of those that may go, if it has any memory; take it
 * out. Under the lock. */
void context_enlist(struct contexts *all, struct context *context);
void context_unlist(struct contexts *all, struct context *context);
/* Bytes from..to of a context are touched in memory: what that makes of an
 * extent of it that is mapped from the file. Under the lock. */
void context_visit(struct contexts *all, struct context *context, size_t at,
                   size_t from, size_t to);
bool context_is_resident(const struct context *context);
/* Find what was touched of one that is busy and `unseen`. Under the lock, which
 * is let go meanwhile. */
void context_see(struct contexts *all, struct context *context);
/* It becomes the caller's; it is not busy any more. Under the lock. */
void context_occupy(struct contexts *all, struct context *context);
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

/* ---- extent.c: of a context that is busy, without the lock --------------- */

static inline bool extent_is_here(const struct extent *extent)
{
    return extent->state == EXTENT_RESIDENT || extent->state == EXTENT_VISITED;
}
/* Whether it is touched in its place by whoever copies. */
static inline bool extent_is_near(const struct extent *extent)
{
    return extent_is_here(extent) || extent->state == EXTENT_SHARED;
}
/* Whether an extent can have a frame: the others come to their own place. */
bool extent_is_framed(const struct contexts *all, const struct context *context,
                      size_t at);
/* Bytes that an extent takes when it comes. */
uint64_t extent_charge(const struct contexts *all,
                       const struct context *context, size_t at);
/* Find what was touched since it was opened, and note that of its phase; *held:
 * the bytes of its extents; *faults: pages that the kernel brought meanwhile.
 * Nobody else may touch it. -ENOMEM. */
int extents_look(struct contexts *all, struct context *context, uint64_t *held,
                 uint64_t *faults);
/* Write what is dirty of extents that are here; *bytes: so much more. */
int extents_write(struct contexts *all, struct context *context,
                  const struct extent_list *list, uint64_t *bytes);
/* They go, and have been written: their memory goes to their frames, which are
 * warm then, or back to the kernel. */
int extents_drop(struct contexts *all, struct context *context,
                 struct extent_list *list);
/* Read extents that are away into their frames, and put these into their
 * places, or read them there. */
int extents_bring(struct contexts *all, struct context *context,
                  const struct extent_list *list, uint64_t *bytes);
/* Give the kernel FRESH extents in use, the last ones first, until `bytes` or
 * less are left to be in memory, if there are so many. The context is open, and
 * its rank waits for this. */
int extents_share(struct contexts *all, struct context *context,
                  uint64_t bytes);
/* What the kernel pages of one that ends need not be written. */
void extents_forget(const struct contexts *all, const struct context *context);
/* A part of it will be written to disk: what is fresh of that is away. */
int extents_expose(struct contexts *all, struct context *context, size_t offset,
                   size_t bytes);

/* ---- frame.c ------------------------------------------------------------- */

int frames_begin(struct contexts *all);
void frames_end(struct contexts *all);
char *frame_at(const struct contexts *all, int slot);
/* Take one, with pages if there are any; -1: there is none. One without. Put
 * one back. Under the lock. */
int frame_get(struct contexts *all);
int frame_get_cold(struct contexts *all);
void frame_put(struct contexts *all, int slot, bool is_warm);
/* Cold frames that are lacking, so that `needed` are warm, or those of a last
 * group. */
static inline int frames_lacking(const struct frames *frames, int needed)
{
    int lacking = needed - frames->warm_count;

    return frames->group > 0 && lacking > 0
               ? (lacking + frames->group - 1) / frames->group * frames->group
               : 0;
}
/* Make a group warm. Under the lock, which is let go meanwhile. False: there
 * are too few that are cold, or no memory. */
bool frames_grow(struct contexts *all);
/* The memory of an extent's place goes to a frame: false, it does not move. The
 * other way round; 0 or an error. */
bool frame_take(const struct contexts *all, int slot, char *place);
int frame_place(const struct contexts *all, int slot, char *place, bool odd);
/* Give the pages of one back. */
void frame_cool(const struct contexts *all, int slot);

/* ---- phase.c ------------------------------------------------------------- */

/* The rank of a context is about to wait: what it will be in then. */
void phase_next(struct contexts *all, struct context *context);
/* It is about to go on: what others have found out since. Whether nobody had,
 * so far. */
void phase_learn(const struct contexts *all, struct context *context);
bool phase_is_new(const struct context *context);
/* It touched an extent; whether it is expected to. */
void phase_note(struct context *context, size_t at);
bool phase_has(const struct context *context, size_t at);
/* The same as phase_next, without the lock, where nothing is expected before
 * and after; false: that is not so, and nothing has happened. */
bool phase_skip(struct context *context);
/* Whether nothing is expected of the phase that it will be in. */
bool phase_is_empty(const struct context *context);
void phases_free(struct context *context);
/* What ranks know of each other's. -ENOMEM. */
int phases_begin(struct contexts *all);
void phases_end(struct contexts *all);

/* ---- budget.c ------------------------------------------------------------ */

/* Before ranks are. */
void budget_begin(struct contexts *all);
void budget_end(struct contexts *all);
/* From time to time: how much is lent to contexts. Under the lock, best when
 * none of the calling worker is open. */
void budget_look(struct contexts *all);
/* What contexts may have now; where nothing else helps, all that was planned,
 * or so much more than that. Under the lock. */
uint64_t budget_most(const struct contexts *all, bool helpless, uint64_t slack);

/* ---- quick.c ------------------------------------------------------------- */

/* Workers may be quick, where the kernel and the run allow it. -ENOMEM. */
int quick_begin(struct contexts *all);
void quick_end(struct contexts *all);
/* The calling worker's rank goes on, or waits, without more ado. False: it
 * cannot. Not under the lock. */
bool quick_resume(struct contexts *all, struct context *context);
bool quick_suspend(struct contexts *all, struct context *context);
/* All that follows is under the lock. The rank of a context that was looked at
 * waits: it may go on quickly, if it needs nothing. */
void quick_allow(struct contexts *all, struct context *context);
/* A rank of the calling worker is about to go on slowly. */
void quick_drain(struct contexts *all);
/* The calling worker is not quick: its rank has its context open as any. */
void quick_stop_here(struct contexts *all);
/* No worker is quick. Returns whether any was; then the lock may have been let
 * go, and some may be so again. */
bool quick_stop(struct contexts *all);
/* A context is no worker's to go on with, and what it has touched is known.
 * Returns whether the lock was let go: then that may be so no more. */
bool quick_claim(struct contexts *all, struct context *context);

/* ---- prefetch.c ---------------------------------------------------------- */

/* Threads, one for each worker. -ENOMEM. */
int prefetch_begin(struct contexts *all);
void prefetch_end(struct contexts *all);
/* The calling worker will need it next: it may come. */
void context_prefetch(struct context *context);

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

/* ---- dirty.c --------------------------------------------------------- */

/* Once there are addresses. -ENOTSUP: what is wanted is not to be had. */
int dirty_begin(struct contexts *all, enum poise_vrank_tracking wanted);
void dirty_end(struct contexts *all);
/* Add what must be written of an extent that goes to context->runs, and set
 * what will be stored then; whether its huge page is split. -ENOMEM. */
int dirty_plan(const struct contexts *all, struct context *context, size_t at);
/* An extent has come in, RESIDENT: notice what is written from now on. */
void dirty_watch(const struct contexts *all, struct context *context,
                 size_t at);
/* Count pages that are in memory, extent by extent: `seen` of those at
 * first..end, which was 0. */
void dirty_count(const struct contexts *all, struct context *context,
                 size_t first, size_t end);
/* The first of context->ranges that ends behind an offset; or their number. */
int dirty_range(const struct context *context, size_t offset);
/* Pages from..to are stored, or not. */
void stored_set(struct context *context, size_t from, size_t to, bool stored);
bool stored_get(const struct context *context, size_t page);
/* The next pages from *to on, below `end`, that are stored: *from..*to. False:
 * there are none. */
bool stored_next(const struct context *context, size_t *from, size_t *to,
                 size_t end);

#endif
