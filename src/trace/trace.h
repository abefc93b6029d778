/*
 * poise/trace.h - records of events in rings that can be left on.
 *
 * A trace is one file of rings, one writer each, mapped by whoever writes and
 * reads it. A record says which collector made it, its sequence number there,
 * and up to four times or values; what those mean stands in the file too, as
 * types and collectors. Recording costs a reading of the clock and 48 bytes of
 * stores: no system call, no lock, and it is safe in a signal handler. When a
 * ring is full the oldest records are overwritten and counted. A file may be
 * read at any time, in place, from another process or after a crash
 * (docs/formats.md).
 *
 * Emitting, in a program where a trace may be in force (poise_trace_use):
 *
 *     poise_trace_event(POISE_TRACE_TOKEN, round, next_rank, colour, 0);
 *
 * One load and a branch where none is. A span takes its own times:
 *
 *     struct poise_trace_ring *ring = poise_trace_ring();
 *     uint64_t enter = poise_trace_ticks(ring);
 *     ...
 *     poise_trace_put(ring, collector, call, enter, poise_trace_ticks(ring),
 *                     bytes, 0);
 *
 * All functions are local. Nothing is analysed here: that is done above the
 * collectives. Several files as one stream: <poise/trace_session.h>.
 *
 * Source: thesis 7.2, 4.1 and 4.2 (event collectors, trace tuples).
 */
#ifndef POISE_TRACE_H
#define POISE_TRACE_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what is recorded --------------------------------------------------- */

/** Values of a record. The first is always a time: when it began. */
#define POISE_TRACE_VALUES 4

/** What a value is. Part of the file format: only append. */
enum poise_trace_unit {
    POISE_TRACE_UNUSED,
    POISE_TRACE_TIME, /**< poise_clock_ticks() */
    POISE_TRACE_COUNT,
    POISE_TRACE_BYTES,
    POISE_TRACE_RANK,
    POISE_TRACE_ID,
    POISE_TRACE_CODE, /**< 0, or an errno value */
    POISE_TRACE_NS,   /**< a duration */
    POISE_TRACE_TEXT, /**< up to 8 characters, the first in the lowest byte */
    POISE_TRACE_UNITS
};

/**
 * Poise's own types: `s` is the sequence, then the values behind the time
 * `t`. A number is a type and also a collector of that type, for what needs no
 * collectors of its own. Values are part of the file format: only append; the
 * table in schema.c has the same in words.
 */
enum poise_trace_kind {
    POISE_TRACE_NONE,
    POISE_TRACE_THREAD,        /**< a ring's new owner; s: thread, t, text,
                                  text */
    POISE_TRACE_PHASE_BEGIN,   /**< s: number, t, text: name, value */
    POISE_TRACE_PHASE_END,     /**< s: number, t, text: name, value, code */
    POISE_TRACE_TASK_BEGIN,    /**< s: task, t, bytes */
    POISE_TRACE_TASK_END,      /**< s: task, t */
    POISE_TRACE_STEAL_ASK,     /**< t, victim */
    POISE_TRACE_STEAL_GOT,     /**< t, victim, tasks */
    POISE_TRACE_STEAL_REFUSED, /**< t, victim */
    POISE_TRACE_STEAL_GAVE,    /**< t, thief, tasks */
    POISE_TRACE_IDLE_BEGIN,    /**< t */
    POISE_TRACE_IDLE_END,      /**< t */
    POISE_TRACE_TOKEN,         /**< t, next rank, colour */
    POISE_TRACE_CHECKPOINT,    /**< s: number, t, bytes */
    POISE_TRACE_SEND,          /**< s: number among this pair's, t, to, bytes */
    POISE_TRACE_RECEIVE,       /**< s: the same number, t, from, bytes */
    POISE_TRACE_COLL_ENTER,    /**< s: call, t, bytes, operation */
    POISE_TRACE_COLL_LAST,     /**< s: call, t, top of the cell it released */
    POISE_TRACE_COLL_LEAVE,    /**< s: call, t, code */
    POISE_TRACE_HOP,           /**< s: call; enter, arrived, released, left */
    POISE_TRACE_CALL,          /**< s: call; enter, left, bytes, code */
    POISE_TRACE_MESSAGE,       /**< s: number; enter, left, peer, bytes */
    POISE_TRACE_RUN,           /**< s: virtual rank; from, to, why it stopped */
    POISE_TRACE_SWAP,          /**< s: virtual rank; from, to, bytes, 1: in */
    POISE_TRACE_LEVEL,         /**< s: level; from, to, vertices, edges */
    POISE_TRACE_BLOCK,         /**< s: version; from, to, block, code */
    POISE_TRACE_PASS,          /**< s: pass; from, to, items, bytes */
    POISE_TRACE_FILE,          /**< s: number; from, to, bytes, code */
    POISE_TRACE_KINDS,
    POISE_TRACE_USER = 1024,      /**< from here on: poise_trace_define */
    POISE_TRACE_COLLECTOR = 65536 /**< from here on: poise_trace_collector */
};

/** A record, 48 bytes. Its writer stores `stamp` last. */
struct poise_trace_event {
    uint32_t collector;
    uint32_t stamp; /**< number in its ring + 1, low 32 bits */
    uint64_t sequence;
    uint64_t values[POISE_TRACE_VALUES];
};

/** What the records of a collector look like. Names are cut to 23, 15 and 11
 * bytes. */
struct poise_trace_type {
    uint32_t id; /**< set by poise_trace_define */
    char name[24];
    char sequence[16]; /**< what the sequence counts; "" if nothing */
    struct {
        uint32_t unit; /**< enum poise_trace_unit */
        char name[12];
    } values[POISE_TRACE_VALUES];
};

/** One place where records are made: a call on a communicator, a hop of a
 * tree. Zero is the default of each member. */
struct poise_trace_place {
    uint32_t id;         /**< set by poise_trace_collector */
    uint32_t type;       /**< enum poise_trace_kind, or one's own */
    uint32_t parent;     /**< the collector above it (its hop's parent); 0 */
    int32_t rank, peer;  /**< of the communicator or tree; peer -1: none */
    uint32_t level;      /**< how deep in its tree */
    uint64_t group;      /**< communicator or tree, alike on all its ranks */
    char name[60];       /**< "allreduce", "up", ... */
    uint32_t size;       /**< ranks of the group; 0: nobody said */
    char group_name[24]; /**< "MPI_COMM_WORLD", a tree's shape, ... */
};

/* ---- making a trace ----------------------------------------------------- */

struct poise_trace;

struct poise_trace_options {
    uint64_t session[2]; /**< drawn if zero; alike in all files of a session */
    int rank, size;      /**< of this process; size 0: 1 */
    unsigned capacity;   /**< records of a ring, rounded up to a power of two;
                            0: 16,384 (768 KiB for each thread) */
    unsigned rings_max;  /**< threads at a time; 0: 16,384 */
    const char *program; /**< shown to people; NULL: this process' name */
    bool paused;         /**< record nothing until poise_trace_pause says so */
    uint32_t rate; /**< calls of a communicator to record in a second at most,
                      for who samples (poise_trace_sampler); 0: all */
};

/**
 * Create a trace. `path` is the file, which must not exist; NULL makes an
 * anonymous one. The file grows by a ring whenever a thread claims one, whose
 * space is reserved then: emitting cannot run out of disk, and a thread that
 * gets no ring is counted (`refused`). Owned by the caller.
 *
 * -EEXIST, -ENOSPC, ...; -EINVAL: more than fits an address.
 */
POISE_API int poise_trace_create(const char *path,
                                 const struct poise_trace_options *options,
                                 struct poise_trace **out);
/** Unmap; the file of a named trace stays, and says that it ended in order.
 * It is not in force any more, views of it (poise_trace_view_of) are closed,
 * and nobody uses its rings. NULL is allowed. */
POISE_API void poise_trace_destroy(struct poise_trace *trace);

/** Put a trace in force for the process: from now on every thread records into
 * a ring of it, claimed with its first record. NULL: none is. Returns the one
 * that was. A child of fork has none in force. */
POISE_API struct poise_trace *poise_trace_use(struct poise_trace *trace);

/** End a trace that other threads may still record into: it is not in force any
 * more, its file says that it ended in order, and its memory stays mapped as
 * long as the process lives. Instead of poise_trace_destroy; NULL is allowed.
 */
POISE_API void poise_trace_stop(struct poise_trace *trace);

/**
 * Stop recording into the trace of a process that runs, or let it go on: what
 * poise_trace_ring gives is NULL meanwhile. A record that is being made is
 * finished. Returns whether it was paused before (1 or 0).
 *
 * Errors of poise_trace_open; -EACCES: the file may not be written to;
 * -ESRCH: it has ended. Any process.
 */
POISE_API int poise_trace_pause(const char *path, bool paused);

/** In a child of fork, before it starts threads: record as `rank` of the
 * session that was in force when it was made, in a file of its own, PATH.rank.
 * Nothing if none was, or it had no path. Errors of poise_trace_create; the
 * child goes on unrecorded then. */
POISE_API int poise_trace_child(int rank);

/** Describe a type of one's own. Returns its number (POISE_TRACE_USER and up);
 * the same number for an equal type. -ENOSPC: 192 are there; -EINVAL: the
 * first value is no time. */
POISE_API int64_t poise_trace_define(struct poise_trace *trace,
                                     const struct poise_trace_type *type);

/** Describe a collector. Returns its number, or that of its type when the
 * table is full (2,040 at a time; the file counts those that found no place)
 * or `trace` is NULL: it can be used in either case. Any thread. */
POISE_API uint32_t poise_trace_collector(struct poise_trace *trace,
                                         const struct poise_trace_place *place);
/** Nobody records with this number any more; its place may be given to
 * another, and what is left of its records then shows their number only. */
POISE_API void poise_trace_collector_end(struct poise_trace *trace,
                                         uint32_t collector);

/* ---- recording ---------------------------------------------------------- */

/**
 * The head of a ring inside the file; its records follow at once. Only the
 * functions of this header use its members.
 */
struct poise_trace_ring {
    uint64_t reserved; /**< records ever begun; __atomic access */
    uint64_t mask;     /**< capacity - 1; the capacity is a power of two */
    struct poise_trace *trace; /**< in its writer's process only */
    int32_t owner; /**< thread that has it; -1: claimed by hand; 0: none;
                      __atomic */
    uint32_t index;
    uint64_t owners; /**< how many had it so far; __atomic */
    int32_t tid;     /**< of the last one */
    int32_t reserved_bits;
    char name[32];   /**< NUL-terminated */
    uint64_t inside; /**< when its writer went into a call that it may have to
                        wait in (poise_trace_enter); 0: it is in none;
                        __atomic */
    uint64_t latest; /**< inside a call: the time that its writer read last, for
                        what begins or ends at the same time; 0: none */
    uint64_t skipped; /**< calls that its writer left out; __atomic */
    uint64_t unused[3];
};

/** The trace in force, or NULL; __atomic access. Only poise_trace_use sets
 * it. */
POISE_API extern struct poise_trace *poise_trace_in_force;

/** Whether one is: a load. */
static inline bool poise_trace_is_on(void)
{
    return __builtin_expect(
        __atomic_load_n(&poise_trace_in_force, __ATOMIC_RELAXED) != NULL, 0);
}

/** The calling thread's ring in the trace in force, claimed if it has none;
 * NULL if no trace is in force or there is no ring to be had (which is
 * counted). Safe in signal handlers. Good until the trace in force changes;
 * a user-level thread asks again after it may have been resumed elsewhere. */
POISE_API struct poise_trace_ring *poise_trace_ring_slow(void);

static inline struct poise_trace_ring *poise_trace_ring(void)
{
    return poise_trace_is_on() ? poise_trace_ring_slow() : NULL;
}

/** Name the calling thread's ring, of which 31 bytes are kept; else it has the
 * thread's own name. Nothing where no trace is in force. */
POISE_API void poise_trace_name(const char *name);

/** Claim a ring for a writer of one's own choice, which returns it;
 * poise_trace_ring does so for threads. NULL with the error set: -ENOSPC the
 * disk is full, -EAGAIN all rings have writers. Any thread; safe in signal
 * handlers. */
POISE_API struct poise_trace_ring *poise_trace_claim(struct poise_trace *trace,
                                                     const char *name);
/** Give it back, to be claimed again. Rings of threads that have ended come
 * back by themselves. */
POISE_API void poise_trace_return(struct poise_trace_ring *ring);

/** For poise_trace_put: called once a turn of a ring. */
POISE_API void poise_trace_turn(struct poise_trace_ring *ring);

/** The clock, or 0 if nothing is recorded. */
static inline uint64_t poise_trace_ticks(const struct poise_trace_ring *ring)
{
    return ring ? poise_clock_ticks() : 0;
}

/**
 * The ring's writer goes into a call that it may have to wait in, and leaves
 * it: for those that run only while it waits. The time of it, or 0 if `ring` is
 * NULL. What the inside of the call records begins at the same time as the
 * call and, where no time to speak of goes by behind it, ends with it:
 * `close`. So the clock, which takes longer than all else, is read once for
 * both.
 */
static inline uint64_t poise_trace_enter(struct poise_trace_ring *ring)
{
    if (!ring) {
        return 0;
    }
    ring->latest = poise_clock_ticks();
    __atomic_store_n(&ring->inside, ring->latest, __ATOMIC_RELAXED);
    return ring->latest;
}
static inline uint64_t poise_trace_leave(struct poise_trace_ring *ring,
                                         uint64_t enter, bool close)
{
    if (!ring) {
        return 0;
    }
    uint64_t latest = ring->latest;
    __atomic_store_n(&ring->inside, 0, __ATOMIC_RELAXED);
    ring->latest = 0;
    return close && latest > enter ? latest : poise_clock_ticks();
}
/** The same of a part of the call, or of one that nothing is around. */
static inline uint64_t poise_trace_begin(struct poise_trace_ring *ring)
{
    if (!ring) {
        return 0;
    }
    uint64_t latest = ring->latest;
    ring->latest = 0;
    return latest ? latest : poise_clock_ticks();
}
static inline void poise_trace_end(struct poise_trace_ring *ring,
                                   uint64_t ticks)
{
    if (ring && __atomic_load_n(&ring->inside, __ATOMIC_RELAXED) != 0) {
        ring->latest = ticks;
    }
}

/* The number of the next record, which no signal handler gets too: one
 * instruction, unlocked, since nobody else writes. */
static inline uint64_t poise_trace_reserve(struct poise_trace_ring *ring)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    uint64_t n = 1;
    __asm__ volatile("xaddq %0, %1" : "+r"(n), "+m"(ring->reserved)::"cc");
    return n;
#else
    return __atomic_fetch_add(&ring->reserved, 1, __ATOMIC_ACQ_REL);
#endif
}

/**
 * Record: values[0] is a time (poise_trace_ticks). Nothing if `ring` is NULL.
 * Only the ring's writer, and its signal handlers.
 *
 * The stores are releases (plain moves on x86), so that a reader that sees a
 * word of this record sees that its slot was taken, and drops the older one
 * that it was copying; the stamp comes last and says that the record is whole.
 */
static inline void poise_trace_put(struct poise_trace_ring *ring,
                                   uint32_t collector, uint64_t sequence,
                                   uint64_t time, uint64_t a, uint64_t b,
                                   uint64_t c)
{
    if (!ring) {
        return;
    }
    uint64_t n = poise_trace_reserve(ring);
    struct poise_trace_event *event =
        (struct poise_trace_event *)(ring + 1) + (n & ring->mask);
    __atomic_store_n(&event->collector, collector, __ATOMIC_RELEASE);
    __atomic_store_n(&event->sequence, sequence, __ATOMIC_RELEASE);
    __atomic_store_n(&event->values[0], time, __ATOMIC_RELEASE);
    __atomic_store_n(&event->values[1], a, __ATOMIC_RELEASE);
    __atomic_store_n(&event->values[2], b, __ATOMIC_RELEASE);
    __atomic_store_n(&event->values[3], c, __ATOMIC_RELEASE);
    __atomic_store_n(&event->stamp, (uint32_t)n + 1, __ATOMIC_RELEASE);
    if (__builtin_expect((n & ring->mask) == ring->mask, 0)) {
        poise_trace_turn(ring);
    }
}

/** Record something that happens now, in the calling thread's ring. */
static inline void poise_trace_event(uint32_t collector, uint64_t sequence,
                                     uint64_t a, uint64_t b, uint64_t c)
{
    struct poise_trace_ring *ring = poise_trace_ring();
    poise_trace_put(ring, collector, sequence, poise_trace_ticks(ring), a, b,
                    c);
}

/** Up to eight characters as a value of unit text. */
static inline uint64_t poise_trace_text(const char *text)
{
    uint64_t value = 0;
    for (int i = 0; i < 8 && text[i]; i++) {
        value |= (uint64_t)(unsigned char)text[i] << (8 * i);
    }
    return value;
}

/* ---- sampling ----------------------------------------------------------- */

/**
 * Which calls are recorded where they come faster than is worth while: rows of
 * POISE_TRACE_ROW calls, one after the other, and none in between. A row begins
 * at a call whose number is one more than a multiple of a power of two, which
 * follows from how long calls take: so ranks that call together leave out the
 * same ones without a word to each other, but for some around a change. The
 * clock is read for calls that are recorded, and for one in POISE_TRACE_LOOK of
 * those that are not. One for each communicator of each rank; zero is one that
 * leaves out nothing.
 */
struct poise_trace_sampler {
    uint64_t next;     /**< calls with lower numbers are left out */
    uint64_t spacing;  /**< ticks for a call that is recorded, at least; 0: none
                          is left out */
    uint64_t ticks;    /**< when the last row ended; 0: there was none */
    uint64_t number;   /**< with which call */
    double call_ticks; /**< that a call takes, smoothed */
    unsigned level; /**< rows begin at multiples of POISE_TRACE_ROW << level */
};
enum { POISE_TRACE_ROW = 16, POISE_TRACE_LOOK = 64 };

/** Begin with what the trace asks for. NULL: none is left out. */
POISE_API void poise_trace_sampler_begin(struct poise_trace_sampler *sampler,
                                         const struct poise_trace *trace);
/** Call `number`, from 1, of a row's last was recorded, and ended at `ticks`;
 * or was not, and the clock says so now: choose the next row. */
POISE_API void poise_trace_sampler_row(struct poise_trace_sampler *sampler,
                                       uint64_t number, uint64_t ticks);
POISE_API void poise_trace_sampler_look(struct poise_trace_sampler *sampler,
                                        uint64_t number, uint64_t ticks);

static inline bool
poise_trace_sampled(const struct poise_trace_sampler *sampler, uint64_t number)
{
    return number >= sampler->next;
}
/** Behind a call that was recorded, and one that was not. */
static inline void
poise_trace_sampler_recorded(struct poise_trace_sampler *sampler,
                             uint64_t number, uint64_t ticks)
{
    if (sampler->spacing && number % POISE_TRACE_ROW == 0) {
        poise_trace_sampler_row(sampler, number, ticks);
    }
}
static inline void
poise_trace_sampler_skipped(struct poise_trace_sampler *sampler,
                            uint64_t number)
{
    if (__builtin_expect(number % POISE_TRACE_LOOK == 0, 0)) {
        poise_trace_sampler_look(sampler, number, poise_clock_ticks());
    }
}
/** Count calls that were left out, in the ring that they would have gone into;
 * nothing if it is NULL. */
static inline void poise_trace_skip(struct poise_trace_ring *ring,
                                    uint64_t calls)
{
    if (ring) {
        __atomic_store_n(&ring->skipped, ring->skipped + calls,
                         __ATOMIC_RELAXED);
    }
}

/* ---- reading rings ------------------------------------------------------ */

/** A trace of this or another process, possibly still being written. */
struct poise_trace_view;

/** -EPROTO: not a trace, or of another version; -EBADMSG: cut short or
 * damaged. The caller closes the view. One thread at a time. */
POISE_API int poise_trace_open(const char *path, struct poise_trace_view **out);
/** A view of a trace of this process (also an anonymous one), which it
 * borrows. */
POISE_API int poise_trace_view_of(struct poise_trace *trace,
                                  struct poise_trace_view **out);
POISE_API void poise_trace_close(struct poise_trace_view *view);

/** What the head of a trace says. Strings are owned by the view. */
struct poise_trace_info {
    uint64_t session[2];
    int rank, size, pid;
    const char *host, *program;
    uint64_t clock[2]; /**< poise_trace_clock_id */
    bool has_tsc;      /**< else ticks are CLOCK_MONOTONIC */
    uint64_t tick_hz;
    uint64_t start_ticks; /**< no record is older */
    uint64_t capacity;    /**< records of a ring */
    uint64_t refused;     /**< threads that got no ring: their records are
                             missing, all of them */
    uint64_t unplaced;    /**< collectors that found no place */
    bool ended;           /**< in order; else it runs, or was killed */
    bool paused;          /**< nothing is recorded for now */
    uint32_t rate;        /**< calls of a communicator that are recorded in a
                             second at most; 0: all */
};
POISE_API void poise_trace_info(const struct poise_trace_view *view,
                                struct poise_trace_info *out);

/** Rings so far; grows while others claim. */
POISE_API unsigned poise_trace_rings(struct poise_trace_view *view);

struct poise_trace_ring_info {
    char name[32];
    int32_t tid;          /**< the last owner */
    bool owned;           /**< nobody gave it back */
    uint64_t written;     /**< records ever begun */
    uint64_t overwritten; /**< of which no longer readable */
    uint64_t owners;
    uint64_t skipped; /**< calls that its writer left out (sampling) */
};
/** -EINVAL: no such ring. */
POISE_API int poise_trace_ring_info(struct poise_trace_view *view,
                                    unsigned ring,
                                    struct poise_trace_ring_info *out);

/** What a number means. False if it is not in the file: a collector that is
 * gone. Any record: its collector's type. */
POISE_API bool poise_trace_type(const struct poise_trace_view *view,
                                uint32_t collector,
                                struct poise_trace_type *out);
/** The same of a collector; that of a bare type has only its type's name. */
POISE_API bool poise_trace_place(const struct poise_trace_view *view,
                                 uint32_t collector,
                                 struct poise_trace_place *out);

/**
 * Where a reader is in a ring. Records are numbered from 0 over the ring's
 * life, and next == read + lost + unfinished at any time: nothing is lost
 * unseen.
 */
struct poise_trace_cursor {
    const struct poise_trace_ring *ring;
    uint64_t next;       /**< number of the next record */
    uint64_t read, lost; /**< lost: overwritten before they were read */
    uint64_t unfinished; /**< begun by a writer that was killed in between */
    uint64_t capacity;
    bool final; /**< the writer is gone: pass over what it left
                   unfinished; else reading stops there */
};

/** A cursor at the oldest record. -EINVAL: no such ring. */
POISE_API int poise_trace_cursor(struct poise_trace_view *view, unsigned ring,
                                 struct poise_trace_cursor *out);

/**
 * Copy up to `max` records. Returns how many; 0: nothing new. Those overwritten
 * before they could be copied are counted in `lost`, never returned torn.
 * Any thread, one for each cursor; no system call, no lock.
 */
POISE_API size_t poise_trace_read(struct poise_trace_cursor *cursor, size_t max,
                                  struct poise_trace_event *events);

#ifdef __cplusplus
}
#endif

#endif
