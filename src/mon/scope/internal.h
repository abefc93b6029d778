/* What the files of a scope share. */
#ifndef POISE_MON_SCOPE_INTERNAL_H
#define POISE_MON_SCOPE_INTERNAL_H

#include "mon/scope/scope.h"

#include <pthread.h>

enum {
    SCOPE_STAGES = 16,
    /* Records of a ring at a time: three KiB of each of some ranks fit the
     * nearest cache beside the calls that they become. */
    SCOPE_BATCH = 64,
    /* With helpers, that meet after each: what they wait is shared by more. */
    SCOPE_BATCH_HELPED = 1024,
    SCOPE_RESULT_RINGS = 64,
    /* More than all collectors of a file at a time. */
    SCOPE_COLLECTORS = 2048
};

/* A number of the trace of results, not of the file that a tuple is from. */
#define SCOPE_OWN (UINT32_C(1) << 31)

/* Collectors of a file and what they are in the trace of results. */
struct scope_names {
    uint32_t from[SCOPE_COLLECTORS], to[SCOPE_COLLECTORS];
};

/* A rank's file; view NULL: not there yet, or not of this scope. */
struct scope_file {
    char *path;
    struct poise_trace_view *view;
    struct poise_trace_info info;
    struct scope_clock clock;
    struct scope_names *names; /* NULL: none went into results */
    int host, cluster;         /* dense; -1: not known */
    unsigned rings;            /* known */
    bool foreign;              /* not the clock of the first file */
    bool outside;              /* of another host or cluster than is asked */
};

/* A ring, and what was copied of it but not yet taken. */
struct scope_ring {
    struct poise_scope_from from;
    struct poise_trace_cursor cursor;
    uint64_t left_out;
    uint64_t seen_next; /* scope_wait: records when it last looked */
    bool was_inside;
    size_t count, at;
    struct poise_trace_event events[];
};

struct scope_stage {
    poise_scope_stage_fn *run;
    void *arg;
};

struct scope_helper {
    struct poise_scope *scope;
    unsigned number;
    pthread_t thread;
};

struct poise_scope {
    char *path;
    char *host, *cluster; /* NULL: all */
    unsigned share;
    struct scope_file *files; /* [size] */
    int size;                 /* 0: the file of rank 0 is not there yet */
    struct scope_ring **rings;
    size_t ring_count;
    size_t batch;
    struct poise_trace_session *session; /* if clocks differ */
    bool has_final;                      /* it was read after the end */
    struct scope_stage leaves[SCOPE_STAGES], stages[SCOPE_STAGES];
    unsigned leaf_count, stage_count;
    struct poise_trace *results;
    struct poise_trace_ring *result_rings[SCOPE_RESULT_RINGS];
    unsigned result_count;
    char **hosts, **clusters; /* names */
    int host_count, cluster_count;
    uint64_t records;
    int64_t first_ns, last_ns;
    uint64_t waits, timely;
    /* What polls took: of this thread's processor time, for how many records,
     * and when the last one was. */
    uint64_t spent_ns, spent_records, polled_ns;
    /* Helpers meet the one that polls at the beginning and the end of a round.
     */
    struct scope_helper *helpers;
    unsigned helper_count;
    pthread_barrier_t barrier;
    bool has_barrier, ending, final;
};

uint64_t scope_scale(uint64_t tick_hz);

/* Open what has come since, and read clocks where they differ: how many files
 * are there that may be read, or negative. */
int scope_open(struct poise_scope *scope, bool final);
void scope_close(struct poise_scope *scope);
int scope_files(const struct poise_scope *scope, bool *foreign);

/* Tuples through stages: how many are left. */
size_t scope_run(const struct scope_stage *stages, unsigned count,
                 const struct poise_scope_from *from,
                 struct poise_trace_event *tuples, size_t left);

/* Fill all rings that are empty: each helper has every so many'th. */
void scope_fill(struct poise_scope *scope, bool final);
int scope_helpers_start(struct poise_scope *scope, unsigned count);
void scope_helpers_end(struct poise_scope *scope);

/* Leave out what there is no time for. */
void scope_leave_out(struct poise_scope *scope);
#endif
