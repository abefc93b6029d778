/*
 * poise/monitor.h - where collectives spend their time, and whose doing it is.
 *
 * A monitor is given what ranks recorded of their calls, in any order, and
 * keeps for each operation of each communicator how often which rank came
 * last, how long the others waited for it, and what the call took behind that.
 * It puts the ranks' parts of one call together by their numbers, blames the
 * call on one cause, adds the figures up and forgets the call: nothing grows
 * with the length of the run, and what found no place is counted.
 *
 * Times are in ns of one clock (<poise/trace_session.h>), each with what it
 * may be wrong by against other hosts. No duration is ever negative. All
 * functions are local; a monitor is used by one thread at a time.
 *
 * Source: thesis 7.1, 3 (wait times, latencies, last arrivals as weights of a
 * tree); 7.2, 4.3 (load-balance and statistics monitors).
 */
#ifndef POISE_MONITOR_H
#define POISE_MONITOR_H

#include <poise/scope.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one statistic ------------------------------------------------------ */

/** Values that a median is of: the newest. Source: 7.2, 4.3 (window 100). */
#define POISE_MONITOR_WINDOW 100

/** Durations, added up. Zero is empty. The deviation and the median are worked
 * out when they are asked for. */
struct poise_monitor_statistic {
    uint64_t count;
    int64_t least, most, sum;
    uint64_t squares[2]; /**< their sum: its low and its high half */
    uint32_t next;       /**< place of the window that is written next */
    uint32_t added;      /**< those of the window from here to `next` are not in
                            the sums yet: only inside a monitor */
    int64_t window[POISE_MONITOR_WINDOW];
};
/** Values below 0 count as 0. */
POISE_API void
poise_monitor_statistic_add(struct poise_monitor_statistic *statistic,
                            int64_t ns);
/** The mean of all values; 0 if there are none. */
POISE_API double
poise_monitor_mean(const struct poise_monitor_statistic *statistic);
/** Their standard deviation; 0 if there are none. Values above 2^48 ns (three
 * days) count as that much in it. */
POISE_API double
poise_monitor_deviation(const struct poise_monitor_statistic *statistic);
/** The median of the newest POISE_MONITOR_WINDOW values, of an even number the
 * lower one of the middle; 0 if there are none. */
POISE_API int64_t
poise_monitor_median(const struct poise_monitor_statistic *statistic);

/* ---- one call ----------------------------------------------------------- */

/** A rank's part of a call. */
struct poise_monitor_span {
    uint64_t sequence; /**< which of its calls, alike on all ranks */
    int64_t enter_ns, left_ns;
    /** This rank's hop of a tree: when all below it had arrived, and when it
     * knew the result. */
    int64_t arrived_ns, released_ns;
    uint64_t bytes;     /**< of this rank's part */
    uint64_t error_ns;  /**< of all times, against other clocks */
    uint32_t clock;     /**< alike: times of the same clock */
    uint32_t group;     /**< the communicator or tree: poise_monitor_group */
    uint32_t operation; /**< what it is called with: poise_monitor_name */
    int32_t rank;       /**< in the group */
    int32_t parent;     /**< the rank that its hop joins; -1: it is a root */
    int32_t code;       /**< what it returned; 0 is good */
    bool has_hop;
};

/** What a call's time went into. */
enum poise_monitor_cause {
    POISE_MONITOR_NONE,      /**< nobody waited for anybody */
    POISE_MONITOR_ARRIVAL,   /**< of `rank`, after the others */
    POISE_MONITOR_REDUCE,    /**< on the way from `rank` to `peer`, or, if peer
                                is -1, in `rank` */
    POISE_MONITOR_BROADCAST, /**< from `peer` to `rank`, or in `rank` */
    POISE_MONITOR_AFTER, /**< between the last arrival and `rank`'s leaving, of
                            calls that nothing is known of inside */
    POISE_MONITOR_CAUSES
};

/** One call, taken apart: arrival + reduce + broadcast is its time. */
struct poise_monitor_verdict {
    enum poise_monitor_cause cause; /**< the largest part */
    int32_t rank, peer;
    int32_t first,
        last;             /**< to arrive. last: the last one that somebody
                             waited for, who had entered and not left; -1: none */
    int64_t arrival_ns;   /**< from the first arrival to the last */
    int64_t reduce_ns;    /**< from there until the root has all; 0 if it is not
                             known */
    int64_t broadcast_ns; /**< from there until all have left that were there */
    int64_t late_ns;      /**< between the last arrival and that before it: by
                             how much the call were shorter without it */
    /** Of late_ns, by how much it had left the call before later than `before`
     * had; the rest it computed longer. -1: the call before is not known. */
    int64_t departure_ns;
    int32_t before;        /**< the last to arrive but `last`; -1: none */
    int64_t came_ns;       /**< when the last one came; INT64_MIN: no last */
    int64_t first_left_ns; /**< the first departure */
    int64_t inside_ns;     /**< that ranks were inside, of all ranks */
    uint64_t bytes;        /**< of all ranks' parts */
    bool failed;           /**< some rank got an error */
    bool
        is_certain; /**< the clocks' errors leave no doubt about who was last */
    bool has_hops;  /**< of all ranks */
};

/** Blame a call that all ranks took part in: spans[rank] for each of `size`. */
POISE_API void poise_monitor_blame(const struct poise_monitor_span *spans,
                                   int size, struct poise_monitor_verdict *out);

/* ---- many calls --------------------------------------------------------- */

struct poise_monitor;

struct poise_monitor_options {
    unsigned calls_max;  /**< of a group, whose ranks' parts are waited for at a
                            time; 0: 256. Rounded up to a power of two */
    size_t memory_bytes; /**< for all; 0: 16 MiB. Groups and operations that
                            find no room are left out, and counted */
};
POISE_API int poise_monitor_create(const struct poise_monitor_options *options,
                                   struct poise_monitor **out);
POISE_API void poise_monitor_destroy(struct poise_monitor *monitor);

/** The number of an operation's name, to be given with its spans; copied.
 * -ENOMEM. */
POISE_API int64_t poise_monitor_name(struct poise_monitor *monitor,
                                     const char *name);
/** Announce a group, before its spans: what it is known by on all ranks, its
 * name for people, copied, and how many ranks it has. Again is allowed: it may
 * have grown. Its number, to be given with its spans, or -ENOSPC: it has no
 * place, and will be left out; -ENOMEM; -EINVAL: it has no ranks. */
POISE_API int64_t poise_monitor_group(struct poise_monitor *monitor,
                                      uint64_t id, const char *name, int size);
/** Add a rank's part of a call. Each rank's parts come in order; those of
 * several ranks in any. Nothing can go wrong: what has no place is counted. */
POISE_API void poise_monitor_add(struct poise_monitor *monitor,
                                 const struct poise_monitor_span *span);
/** Records that were lost before they came here, to be told with the others. */
POISE_API void poise_monitor_lost(struct poise_monitor *monitor,
                                  uint64_t records);
/** The same of records that were left out since they came too fast. */
POISE_API void poise_monitor_left_out(struct poise_monitor *monitor,
                                      uint64_t records);

/** Be told of each call when it is complete: the operation, which has it
 * already (but for its statistics, see poise_monitor_operation), its parts, by
 * rank, and the verdict; both until it returns. The monitor's own figures, last
 * arrivals and statistics, are users of this, the first two. */
struct poise_monitor_operation;
typedef void
poise_monitor_call_fn(const struct poise_monitor_operation *operation,
                      const struct poise_monitor_span *spans,
                      const struct poise_monitor_verdict *verdict, void *arg);
/** -ENOSPC: eight are told already. */
POISE_API int poise_monitor_on_call(struct poise_monitor *monitor,
                                    poise_monitor_call_fn *tell, void *arg);
/** Who was told with `arg` is not told any more; not from a call. */
POISE_API void poise_monitor_on_call_end(struct poise_monitor *monitor,
                                         const void *arg);

/* ---- what it found ------------------------------------------------------ */

/** A rank in all calls of an operation. */
struct poise_monitor_rank {
    uint64_t first, last; /**< how often it was */
    uint64_t order_sum;   /**< of its places in the order of arrival, from 0,
                             in `ordered` calls of its operation */
    int64_t late_sum_ns, late_most_ns; /**< when it was last */
    /** What made it late, in sum: it computed longer than the one before it,
     * or had left the call before later. Less than late_sum_ns where the call
     * before is not known. */
    int64_t program_ns, departure_ns;
    uint64_t caused; /**< calls that are blamed on it, or on its hop */
    struct poise_monitor_statistic arrival_wait, departure_wait;
};

/** A rank's place in a tree: what it joins, and those that join it. */
struct poise_monitor_wrapper {
    int32_t parent;      /**< -1: a root */
    uint64_t calls;      /**< 0: nothing is known */
    uint64_t last_here;  /**< the rank itself came last to its own place */
    uint64_t last_above; /**< it came last to its parent's */
    struct poise_monitor_statistic arrival_wait;   /**< at its parent's */
    struct poise_monitor_statistic departure_wait; /**< from there */
    struct poise_monitor_statistic down; /**< the last arrival here -> all have
                                            arrived */
    struct poise_monitor_statistic up;   /**< result known -> first departure */
    struct poise_monitor_statistic total;   /**< arrived -> left */
    struct poise_monitor_statistic two_way; /**< to the parent and back, of
                                               calls in which it came last
                                               there; needs no common clock */
};

#define POISE_MONITOR_WORST 10

struct poise_monitor_worst {
    uint64_t sequence;
    int64_t start_ns, total_ns;
    struct poise_monitor_verdict verdict;
};

/** An operation on a group. Owned by the monitor; until it is destroyed. */
struct poise_monitor_operation {
    const char *name, *group_name;
    uint64_t group;
    int size;
    uint64_t calls, bytes; /**< bytes: of all ranks' parts */
    uint64_t ordered;      /**< calls whose ranks were put in order: all, or of
                              more than 16 ranks each 16th */
    uint64_t failed;       /**< calls that returned an error on some rank */
    uint64_t uncertain;    /**< calls whose last arrival is in doubt */
    uint64_t causes[POISE_MONITOR_CAUSES];
    int64_t inside_ns; /**< that ranks were in calls, of all ranks */
    /** Of each call: its parts, and their sum. A rank that leaves late counts
     * in its call, while others may be in the next one already. */
    struct poise_monitor_statistic total, arrival, reduce, broadcast;
    struct poise_monitor_rank *ranks;       /**< [size] */
    struct poise_monitor_wrapper *wrappers; /**< [size]; NULL: no hops */
    struct poise_monitor_worst worst[POISE_MONITOR_WORST]; /**< longest first */
    unsigned worst_count;
};
POISE_API unsigned
poise_monitor_operations(const struct poise_monitor *monitor);
/** Its figures as they are now: ask again for those of later calls. NULL: there
 * is no such one. */
POISE_API const struct poise_monitor_operation *
poise_monitor_operation(const struct poise_monitor *monitor, unsigned number);

/** Which share of the calls on the operation's communicator is in the figures,
 * of those from the first to the last that is: less than 1 where ranks left out
 * some, or records were lost or left out. */
POISE_API double
poise_monitor_coverage(const struct poise_monitor *monitor,
                       const struct poise_monitor_operation *operation);

/** The rank that came last most often and the ranks above it, to whom it was
 * passed on: the path with the most last arrivals, from a root. Returns its
 * length, at most `max`; 0: there are no calls. Without hops it is one rank. */
POISE_API int
poise_monitor_heaviest(const struct poise_monitor_operation *operation,
                       int *ranks, int max);

/** What was left out of the figures. */
struct poise_monitor_missing {
    uint64_t lost;       /**< records, before they were read */
    uint64_t left_out;   /**< records, that came faster than was allowed for */
    uint64_t incomplete; /**< calls that some rank's part never came of, or is
                            not there yet */
    uint64_t unplaced;   /**< parts that no place was there for: their call was
                            given up before, or memory is short */
    uint64_t mismatched; /**< calls in which ranks name different operations */
    uint64_t pending; /**< of `incomplete`: those that have their place still,
                         while a program runs most of them under way */
};
POISE_API void poise_monitor_missing(const struct poise_monitor *monitor,
                                     struct poise_monitor_missing *out);

/* ---- reading what ranks record ------------------------------------------ */

/** Reads the files of a session in place, also while they are written. */
struct poise_monitor_reader;

/**
 * Read the session whose rank 0 writes `path` and rank R `path`.R, each from
 * when it is there, into a monitor, which is borrowed. No file need be there
 * yet. Memory depends on the number of ranks and threads only.
 */
POISE_API int poise_monitor_reader_create(struct poise_monitor *monitor,
                                          const char *path,
                                          struct poise_monitor_reader **out);
POISE_API void poise_monitor_reader_destroy(struct poise_monitor_reader *);

/** Read a scope of one's own (<poise/scope.h>), which is borrowed and outlives
 * the reader: with helpers, of one host, for a share of a processor, behind
 * stages. Tuples go on to further stages. -ENOMEM; -ENOSPC: it has no room for
 * a stage. */
POISE_API int poise_monitor_reader_over(struct poise_monitor *monitor,
                                        struct poise_scope *scope,
                                        struct poise_monitor_reader **out);
/** The scope that it reads. */
POISE_API struct poise_scope *
poise_monitor_reader_scope(const struct poise_monitor_reader *reader);

/** Add what is new: poise_scope_poll, with its results and errors. */
POISE_API int poise_monitor_reader_poll(struct poise_monitor_reader *reader,
                                        bool final);

/** A session, as far as it was read. */
struct poise_monitor_source {
    int size, files;   /**< ranks, and files that are open */
    uint64_t records;  /**< read */
    uint64_t lost;     /**< overwritten before they could be, or unfinished */
    uint64_t left_out; /**< not looked at since they came too fast */
    uint64_t skipped;  /**< calls of ranks that they did not record, since they
                          came faster than the trace asks for (sampling) */
    uint64_t nameless; /**< read, but nothing says any more what they are of */
    int running;       /**< files whose program has not ended in order */
    bool one_clock;    /**< all times are of the same clock */
    uint64_t error_ns; /**< by which times of different hosts may be wrong, at
                          most; POISE_TRACE_UNKNOWN */
    int64_t span_ns;   /**< from the first record's time to the last one's */
};
POISE_API void
poise_monitor_reader_source(const struct poise_monitor_reader *reader,
                            struct poise_monitor_source *out);

#ifdef __cplusplus
}
#endif

#endif
