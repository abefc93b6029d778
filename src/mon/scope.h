/*
 * poise/scope.h - event scopes: what ranks record, read in place, through
 * stages of one's own, to one place.
 *
 * A scope reads the rings of all ranks of a session (<poise/trace.h>) while
 * they are written. Tuples, which are records as they lie in the rings, come in
 * batches of one ring, in order; each stage may drop some (filter), change them
 * (convert) or put several together (reduce). Leaf stages run where rings are
 * read, by helper threads if there are some; then the rings are merged by time
 * (gather), and one thread runs the other stages. What is left goes into result
 * rings, one or several (scatter), that are rings of a trace like any other: a
 * further scope reads them, on this host or, gathered, on another. Results that
 * nobody reads in time are overwritten and counted, as records are.
 *
 *     static size_t is_long(const struct poise_scope_from *from,
 *                           struct poise_trace_event *tuples, size_t count,
 *                           void *arg);
 *
 *     poise_scope_create("trace", NULL, &scope);
 *     poise_scope_leaf(scope, is_long, &limit);
 *     poise_scope_stage(scope, count_them, &counts);
 *     while ((code = poise_scope_poll(scope, ended)) > 0 || !ended) ...
 *
 * All functions are local; a scope is used by one thread at a time, and nothing
 * it does makes a rank wait.
 *
 * Source: thesis 7.2, 4.3 and 4.4 (event scopes; gather, scatter, reduce,
 * filter and convert wrappers; intermediate results), 5 (coscheduling).
 */
#ifndef POISE_SCOPE_H
#define POISE_SCOPE_H

#include <poise/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_scope;

/** What contains what. A host is one clock and name; its cluster is what stands
 * in its name behind the first dot (of "n3.site": "site"; without a dot, ""),
 * and clusters are as far apart as a WAN makes them. */
enum poise_scope_level {
    POISE_SCOPE_RANK,
    POISE_SCOPE_HOST,
    POISE_SCOPE_CLUSTER,
    POISE_SCOPE_ALL
};

/** When a scope may run beside the ranks of its host. Source: 7.2, 6.3.1. */
enum poise_scope_when {
    POISE_SCOPE_ALWAYS,
    POISE_SCOPE_CONTRIBUTED, /**< while all ranks here are inside a call: their
                                part is done, the rest is other hosts' */
    POISE_SCOPE_RELEASED     /**< when all that were inside have left */
};

struct poise_scope_options {
    unsigned helpers; /**< threads that read rings and run leaf stages, beside
                         the one that polls */
    const char *host, *cluster; /**< only ranks of these; NULL: all */
    /** Per mille of one processor that polls may take on average, 0: no limit.
     * Where records come faster than that lets them be looked at, the older
     * ones are left out and counted, of all rings up to the same time: of the
     * call in which that falls some ranks' parts are seen. Helpers' time does
     * not count. */
    unsigned share;
};

/** Where a batch comes from. */
struct poise_scope_from {
    struct poise_scope *scope;
    const struct poise_trace_view *view; /**< its file: what collectors are */
    int rank;
    unsigned file; /**< dense numbers, from 0, which stay */
    unsigned ring;
    unsigned helper; /**< which thread runs the stage: 0 the one that polls */
};

/** A stage: `count` tuples of one ring, in order. Returns how many go on, which
 * it has put to the front. A leaf stage runs in several threads at once, but
 * for one ring in one only. */
typedef size_t poise_scope_stage_fn(const struct poise_scope_from *from,
                                    struct poise_trace_event *tuples,
                                    size_t count, void *arg);

/** A scope of the session whose rank 0 writes `path` and rank R `path`.R, each
 * from when it is there; none need be there yet. -ENOMEM; -EAGAIN: no thread
 * for a helper. */
POISE_API int poise_scope_create(const char *path,
                                 const struct poise_scope_options *options,
                                 struct poise_scope **out);
POISE_API void poise_scope_destroy(struct poise_scope *scope);

/** Add a stage: where rings are read, or behind the gather. They run in the
 * order in which they were added. Before the first poll. -ENOSPC: there are 16
 * already. */
POISE_API int poise_scope_leaf(struct poise_scope *scope,
                               poise_scope_stage_fn *stage, void *arg);
POISE_API int poise_scope_stage(struct poise_scope *scope,
                                poise_scope_stage_fn *stage, void *arg);

/** Put what the last stage lets pass into `rings` result rings of a trace,
 * those of a rank always into the same one. The trace is borrowed. -EINVAL: not
 * 1 to 64; errors of poise_trace_claim. */
POISE_API int poise_scope_results(struct poise_scope *scope,
                                  struct poise_trace *trace, unsigned rings);
/** A collector for tuples that stages make themselves, in the trace of results:
 * the number that they have on the way there. 0: there are no results. */
POISE_API uint32_t poise_scope_collector(struct poise_scope *scope,
                                         const struct poise_trace_place *place);

/**
 * Read what is new, but at most some 100,000 records: 1 if there is more, else
 * 0. `final`: the program has ended, and what is unfinished stays so; call it
 * until it returns 0. Of ranks on hosts whose clocks differ nothing is read
 * before all files are there, or `final`.
 *
 * -ENOENT: `final`, and there is no file of rank 0; errors of poise_trace_open;
 * -EINVAL: a file is of another session; -ENOMEM.
 */
POISE_API int poise_scope_poll(struct poise_scope *scope, bool final);

/** Wait until it may run beside the ranks (poise_scope_when), a ring is half
 * full, or `most_ns` have gone by. True: for the first of these. Looks at a
 * word of each ring from time to time; ranks do nothing for it. */
POISE_API bool poise_scope_wait(struct poise_scope *scope,
                                enum poise_scope_when when, uint64_t most_ns);

/** A tuple's time in ns of the session's clock (<poise/trace_session.h>), and
 * by what it may be wrong against other hosts. */
POISE_API int64_t poise_scope_ns(const struct poise_scope_from *from,
                                 uint64_t ticks, uint64_t *error_ns);
/** A number that is alike for ranks whose times are of the same clock. */
POISE_API uint32_t poise_scope_clock(const struct poise_scope_from *from);
/** Which host, cluster, ... a rank is in, from 0; -1: its file is not there. */
POISE_API int poise_scope_unit(const struct poise_scope *scope,
                               enum poise_scope_level level, int rank);
/** Its name; NULL: there is none. Owned by the scope. */
POISE_API const char *poise_scope_unit_name(const struct poise_scope *scope,
                                            enum poise_scope_level level,
                                            int unit);

/** A session, as far as it was read. */
struct poise_scope_source {
    int size, files;   /**< ranks, and files that are open */
    uint64_t records;  /**< read */
    uint64_t lost;     /**< overwritten before they could be, or unfinished */
    uint64_t left_out; /**< not looked at since they came too fast */
    uint64_t skipped;  /**< calls that ranks did not record (sampling) */
    uint64_t waits, timely; /**< poise_scope_wait, and how many came to be for
                               the ranks' sake */
    int running;            /**< files whose program has not ended in order */
    bool one_clock;         /**< all times are of the same clock */
    uint64_t error_ns; /**< by which times of different hosts may be wrong, at
                          most; POISE_TRACE_UNKNOWN */
    int64_t span_ns;   /**< from the first record's time to the last one's */
};
POISE_API void poise_scope_source(const struct poise_scope *scope,
                                  struct poise_scope_source *out);

#ifdef __cplusplus
}
#endif

#endif
