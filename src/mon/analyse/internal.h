/* What the files that analyse calls share. */
#ifndef POISE_MON_ANALYSE_INTERNAL_H
#define POISE_MON_ANALYSE_INTERNAL_H

#include <poise/monitor.h>

/* Times are cut to this, so that none are too far apart to be subtracted: a
 * file may say anything. */
#define MON_TIME_MOST (INT64_MAX / 4)

/* An operation of a group. */
struct mon_operation {
    struct poise_monitor_operation shown;
    uint32_t number; /* of its name */
};

/* A rank's last complete call on a group. */
struct mon_previous {
    uint64_t sequence;
    int64_t left_ns;
};

/* A call whose parts are not all there. */
struct mon_pending {
    uint64_t sequence;
    int arrived; /* parts that are there; 0: the place is free */
};

struct mon_group {
    uint64_t id;
    char *name;
    int size;
    size_t bytes;                     /* of the three tables */
    struct mon_pending *pending;      /* [calls_max] */
    struct poise_monitor_span *spans; /* [calls_max][size]; rank -1: none */
    struct mon_previous *previous;    /* [size] */
};

struct poise_monitor {
    struct poise_monitor_options options;
    size_t memory_bytes; /* in use */
    char **names;
    size_t name_count;
    struct mon_group *groups;
    size_t group_count;
    struct mon_operation **operations;
    size_t operation_count;
    struct poise_monitor_missing missing;
    poise_monitor_call_fn *tell;
    void *tell_arg;
};

/* Memory of `count` x `size` bytes, zeroed, of what the monitor may have; NULL:
 * there is none left. */
void *mon_alloc(struct poise_monitor *monitor, size_t count, size_t size);

/* The operation of that name on a group, made if need be; NULL: no room. */
struct poise_monitor_operation *mon_operation_of(struct poise_monitor *monitor,
                                                 const struct mon_group *group,
                                                 uint32_t number);
void mon_operation_free(struct mon_operation *operation);
/* Add a complete call. */
void mon_operation_add(struct poise_monitor_operation *operation,
                       const struct mon_group *group,
                       const struct poise_monitor_span *spans,
                       const struct poise_monitor_verdict *verdict);
/* What a tree's hops say of it; the operation has wrappers. */
void mon_wrappers_add(struct poise_monitor_operation *operation,
                      const struct poise_monitor_span *spans);

#endif
