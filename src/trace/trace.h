/*
 * poise/trace.h - event rings that can be left on.
 *
 * A trace is one shared-memory file of fixed-size rings, one writer each.
 * Emitting an event costs a TSC read and one 32-byte store, no system call, no
 * lock. When a ring is full the oldest events are overwritten and counted. You
 * may open the file and read it at any time, from another process or after a
 * crash; the layout is versioned (docs/formats.md).
 *
 * Here events are emitted and read; nothing is analysed (that is done above
 * the collectives, by the monitors). All functions are local.
 */
#ifndef POISE_TRACE_H
#define POISE_TRACE_H

#include <poise/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What happened. Values are part of the file format: only append. */
enum poise_trace_kind {
    POISE_TRACE_NONE,
    POISE_TRACE_TASK_BEGIN,    /**< a: task id, b: bytes */
    POISE_TRACE_TASK_END,      /**< a: task id */
    POISE_TRACE_STEAL_ASK,     /**< a: victim rank */
    POISE_TRACE_STEAL_GOT,     /**< a: victim rank, b: tasks */
    POISE_TRACE_STEAL_REFUSED, /**< a: victim rank */
    POISE_TRACE_STEAL_GAVE,    /**< a: thief rank, b: tasks */
    POISE_TRACE_IDLE_BEGIN,
    POISE_TRACE_IDLE_END,
    POISE_TRACE_TOKEN,      /**< a: next rank, b: colour */
    POISE_TRACE_CHECKPOINT, /**< a: number, b: bytes */
    POISE_TRACE_SEND,       /**< a: rank, b: bytes */
    POISE_TRACE_RECEIVE,    /**< a: rank, b: bytes */
    POISE_TRACE_COLL_ENTER, /**< a: call, b: bytes; extra: kind of call */
    POISE_TRACE_COLL_LAST,  /**< a: call, b: top of the cell that it released */
    POISE_TRACE_COLL_LEAVE, /**< a: call, b: 0 or errno */
    POISE_TRACE_USER = 1024 /**< from here on: for users of the library */
};

/** One event, 32 bytes. */
struct poise_trace_event {
    uint64_t ticks; /**< poise_clock_ticks() */
    uint32_t kind;
    uint32_t extra; /**< free for the emitter */
    uint64_t a, b;
};

struct poise_trace;

/**
 * The head of a ring inside the file; its events follow at once. Only
 * poise_trace_emit and the functions below use its members.
 */
struct poise_trace_ring {
    uint64_t written; /**< events ever emitted; __atomic access */
    uint64_t mask;    /**< capacity - 1; the capacity is a power of two */
    char name[32];    /**< NUL-terminated */
    int32_t pid, tid; /**< of the thread that claimed it */
    uint32_t claimed; /**< 1 once name, pid and tid are there; __atomic */
    uint32_t reserved;
};

/**
 * Create a trace of `rings` rings of `capacity` events (rounded up to a power
 * of two, at least 2; all but one of them can be read back, since the oldest
 * may just be being overwritten). `path` is the file, which must not exist;
 * its space is reserved, so that emitting cannot run out of disk. NULL makes
 * an anonymous trace. Owned by the caller; rings die with it.
 *
 * -EEXIST, -ENOSPC, ...; -EINVAL: no rings, or more than fits an address.
 */
POISE_API int poise_trace_create(const char *path, unsigned rings,
                                 size_t capacity, struct poise_trace **out);
/** Unmap; the file of a named trace stays. Views of it (poise_trace_view_of)
 * are closed before, and no context uses its rings any more. NULL is allowed.
 */
POISE_API void poise_trace_destroy(struct poise_trace *trace);

/** Claim the next free ring under a name, of which 31 bytes are kept. Any
 * thread. NULL with ENOSPC set when all are taken. */
POISE_API struct poise_trace_ring *poise_trace_claim(struct poise_trace *trace,
                                                     const char *name);

/** Make `ring` (or none: NULL) the current context's. */
POISE_API void poise_trace_use(struct poise_trace_ring *ring);
POISE_API struct poise_trace_ring *poise_trace_current(void);

/**
 * Emit one event; a NULL ring makes it nothing. Only the ring's writer.
 *
 * The stores are releases (plain moves on x86) so that a reader that sees a
 * word of this event also sees the count of those before it, and notices that
 * what it copied was being overwritten.
 */
static inline void poise_trace_emit(struct poise_trace_ring *ring,
                                    uint32_t kind, uint32_t extra, uint64_t a,
                                    uint64_t b)
{
    if (!ring) {
        return;
    }
    uint64_t n = __atomic_load_n(&ring->written, __ATOMIC_RELAXED);
    struct poise_trace_event *event =
        (struct poise_trace_event *)(ring + 1) + (n & ring->mask);
    __atomic_store_n(&event->ticks, poise_clock_ticks(), __ATOMIC_RELEASE);
    __atomic_store_n(&event->kind, kind, __ATOMIC_RELEASE);
    __atomic_store_n(&event->extra, extra, __ATOMIC_RELEASE);
    __atomic_store_n(&event->a, a, __ATOMIC_RELEASE);
    __atomic_store_n(&event->b, b, __ATOMIC_RELEASE);
    __atomic_store_n(&ring->written, n + 1, __ATOMIC_RELEASE);
}

/* ---- reading ------------------------------------------------------------ */

/** A trace of this or another process, possibly still being written. */
struct poise_trace_view;

struct poise_trace_ring_info {
    char name[32];
    uint64_t written;     /**< events ever emitted */
    uint64_t overwritten; /**< of which no longer readable */
    int32_t pid, tid;
};

/** -EPROTO: not a trace or a newer version; -EBADMSG: cut short or damaged.
 * The caller closes the view. One thread at a time. */
POISE_API int poise_trace_open(const char *path, struct poise_trace_view **out);
/** A view of a trace of this process (also an anonymous one), which it
 * borrows. */
POISE_API int poise_trace_view_of(struct poise_trace *trace,
                                  struct poise_trace_view **out);
POISE_API void poise_trace_close(struct poise_trace_view *view);
POISE_API uint64_t poise_trace_tick_hz(const struct poise_trace_view *view);
/** When the trace was made; no event is older. */
POISE_API uint64_t poise_trace_start_ticks(const struct poise_trace_view *view);
/** Rings claimed so far. */
POISE_API unsigned poise_trace_rings(const struct poise_trace_view *view);
/** -EINVAL: no such ring. */
POISE_API int poise_trace_ring_info(const struct poise_trace_view *view,
                                    unsigned ring,
                                    struct poise_trace_ring_info *out);
/**
 * Copy up to `max` events of a ring, from event number `from` on (numbers count
 * from 0 over the ring's life). Events overwritten meanwhile are skipped, never
 * returned torn. `next` is where to go on. Returns how many; 0 when there was
 * nothing new, or the writer was a whole ring ahead each time the function
 * looked. -EINVAL: no such ring.
 */
POISE_API ssize_t poise_trace_read(const struct poise_trace_view *view,
                                   unsigned ring, uint64_t from, size_t max,
                                   struct poise_trace_event *events,
                                   uint64_t *next);

#ifdef __cplusplus
}
#endif

#endif
