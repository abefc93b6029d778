/* What the files that analyse calls share. */
#ifndef POISE_MON_ANALYSE_INTERNAL_H
#define POISE_MON_ANALYSE_INTERNAL_H

#include "mon/analyse/analyse.h"

/* Times are cut to this, so that none are too far apart to be subtracted: a
 * file may say anything. */
#define MON_TIME_MOST (INT64_MAX / 4)

/* Values count as at most this in sums of squares, which 2^32 of them fit. */
#define MON_SQUARE_MOST (INT64_C(1) << 48)

/* One place of a tree in one call. */
struct mon_hop {
    int last;        /* to arrive: its own rank, or one that joins it */
    int64_t came_ns; /* when */
    int64_t left_ns; /* the first departure */
};

/* An operation of a group. */
struct mon_operation {
    struct poise_monitor_operation shown;
    struct mon_hop *hops; /* [size], of one call; NULL: none so far */
    struct poise_monitor *monitor;
};

struct mon_group {
    struct mon_calls calls; /* the first */
    uint64_t id;
    char *name;
    size_t bytes;     /* of the tables */
    int64_t *left_ns; /* [size]: of the last complete call */
    uint64_t before;  /* its sequence */
    bool has_before;
    uint64_t first,
        last;          /* the lowest and highest number of those in figures, */
    uint64_t complete; /* of which there are so many */
    struct mon_operation **operations; /* [operation_max], by name */
    size_t operation_max;
    struct mon_operation *newest; /* of the newest call; NULL: none */
    uint32_t newest_number;       /* of its name */
};

/* Who is told of calls: the monitor's own figures, and eight others. */
enum { MON_FIGURES = 2, MON_TOLD = MON_FIGURES + 8 };

struct poise_monitor {
    struct poise_monitor_options options;
    size_t memory_bytes; /* in use */
    char **names;
    size_t name_count;
    struct mon_group **groups;
    size_t group_count;
    struct mon_operation **operations;
    size_t operation_count;
    struct poise_monitor_missing missing;
    struct {
        poise_monitor_call_fn *tell;
        void *arg;
    } told[MON_TOLD];
    unsigned told_count;
};

/* Memory of `count` x `size` bytes, zeroed, of what the monitor may have; NULL:
 * there is none left. */
void *mon_alloc(struct poise_monitor *monitor, size_t count, size_t size);

/* The operation of that name on a group, made if need be; NULL: no room. */
struct mon_operation *mon_operation_of(struct poise_monitor *monitor,
                                       struct mon_group *group,
                                       uint32_t number);
void mon_operation_free(struct mon_operation *operation);

/* The two monitors, poise_monitor_call_fn: who comes last, as weights of the
 * tree; waits and latencies of ranks and of places of the tree. */
void mon_last_arrivals(const struct poise_monitor_operation *operation,
                       const struct poise_monitor_span *spans,
                       const struct poise_monitor_verdict *verdict, void *arg);
void mon_statistics(const struct poise_monitor_operation *operation,
                    const struct poise_monitor_span *spans,
                    const struct poise_monitor_verdict *verdict, void *arg);

/* Values that were only kept go into the sums. */
void mon_statistic_fold(struct poise_monitor_statistic *statistic);
/* The same of all statistics of an operation. */
void mon_operation_fold(struct poise_monitor_operation *operation);

/* Keep a value, for each record. The sums, which take longer, are made of a
 * window at a time. */
static inline void mon_statistic_add(struct poise_monitor_statistic *statistic,
                                     int64_t ns)
{
    uint32_t at = statistic->next;
    statistic->window[at] = ns > 0 ? ns : 0;
    statistic->next = at + 1;
    if (__builtin_expect(at + 1 == POISE_MONITOR_WINDOW, 0)) {
        mon_statistic_fold(statistic);
    }
}

#endif
