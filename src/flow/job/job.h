/*
 * Jobs: their files' shapes, which node computes what, how failures are kept.
 * Pure functions, for nodes and the map alike.
 */
#ifndef POISE_FLOW_JOB_H
#define POISE_FLOW_JOB_H

#include <poise/flow.h>

#include <stdatomic.h>

#define FLOW_NOBODY UINT16_MAX

/** An address as the runtime handles it: `place` is the row-major number of
 * the indices in the file's shape. */
struct flow_key {
    uint32_t file;
    int64_t version;
    uint64_t place;
};

static inline bool flow_key_same(const struct flow_key *a,
                                 const struct flow_key *b)
{
    return a->place == b->place && a->version == b->version &&
           a->file == b->file;
}

/* ---- shapes (shape.c): pure functions ----------------------------------- */

/** 0, or -EINVAL with the error set: dims, empty or negative ranges, more
 * places than fit. */
int flow_shape_check(const struct poise_flow_chunk *shape, const char *name);
/** Its versions; where the program left them 0, 0 there is one. */
static inline struct poise_flow_range
flow_shape_versions(const struct poise_flow_chunk *shape)
{
    bool none = shape->versions.from == 0 && shape->versions.to == 0;
    return none ? (struct poise_flow_range){0, 1} : shape->versions;
}
/** Blocks of one version. */
uint64_t flow_shape_places(const struct poise_flow_chunk *shape);
bool flow_shape_holds(const struct poise_flow_chunk *shape,
                      const struct poise_flow_address *address);
uint64_t flow_shape_place(const struct poise_flow_chunk *shape,
                          const struct poise_flow_address *address);
/** The address of a key. */
void flow_shape_address(const struct poise_flow_chunk *shape,
                        const struct flow_key *key,
                        struct poise_flow_address *out);

/** Bring each index into its range, where the first one follows the last. */
void flow_shape_wrap(const struct poise_flow_chunk *shape,
                     struct poise_flow_address *at);

/* ---- partitions (partition.c): which node computes what
 * -------------------------------- */

/** The integers nearest to `total` in the proportion of `weights` such that
 * the largest count/weight is least; nodes of weight 0 get nothing. */
void flow_partition_counts(const double *weights, unsigned nodes,
                           uint64_t total, uint64_t *counts);
/** How far it is from a node to the one before it. */
enum flow_border { FLOW_BESIDE, FLOW_OTHER_HOST, FLOW_OTHER_SITE };
/** Recursive bisection of all places of a version, such that node n gets
 * counts[n] of them: each cut runs across the longer side, and ends in a step
 * where the counts ask for it. The first cuts are between sites, the next ones
 * between hosts, where `borders` ([nodes], enum flow_border; NULL: all are
 * beside each other) says that there are some: few places have far neighbours
 * then. 0 or -ENOMEM. */
int flow_partition_bisect(const struct poise_flow_chunk *shape,
                          const uint64_t *counts, unsigned nodes,
                          const uint8_t *borders, uint16_t *owner);
/** The same by the weight of places instead of their number: parts of equal
 * weight for all nodes with `in[n]` (desyncfs 4.2). */
int flow_partition_weighted(const struct poise_flow_chunk *shape,
                            const double *weight, const bool *in,
                            unsigned nodes, uint16_t *owner);

/** A range of versions of a file and the owners of its places. The second half
 * is a node's. */
struct flow_segment {
    uint32_t file;
    int64_t from, to;
    uint16_t *owner; /**< [places], owned */

    struct flow_own *own; /**< its own places; NULL: not taken over; owned */
    /** [to - from], owned; NULL: none of its blocks is here. */
    _Atomic(struct flow_row *) *rows;
    char apart[64];      /**< what follows changes often, and the above not */
    _Atomic int64_t low; /**< all own blocks below are done */
    int64_t open_to;     /**< tasks were made below */
};

/** Check a job and make the segments that hold from the start, sorted by
 * version; `to` is what of the file they cover. Segments are owned by the
 * caller. 0, or negative with the error set. */
int flow_job_check(const struct poise_flow_job *job, unsigned nodes);
int flow_job_segments(const struct poise_flow_job *job, uint32_t file,
                      unsigned nodes, const uint8_t *borders,
                      struct poise_buf *segments);
/** Free its owners; of a node's half nothing is left. */
void flow_segment_free(struct flow_segment *segment);
/** What tells a job from another one: its files' shapes, and its digest. */
uint64_t flow_job_fingerprint(const struct poise_flow_job *job);

/** Give the places of a dead node to the living ones: a pure function of its
 * arguments, which all nodes and the map compute for themselves. */
void flow_partition_inherit(uint16_t *owner, uint64_t places, unsigned dead,
                            const bool *alive, unsigned nodes);

/** Append to `out` what of a plan differs from the one before it (NULL: none).
 * 0 or -ENOMEM. */
int flow_plan_encode(const uint16_t *before, const uint16_t *owner,
                     uint64_t places, struct poise_buf *out);
/** The plan that it is; -EPROTO, without an error set, if it makes no sense or
 * leaves a place without an owner. */
int flow_plan_decode(const uint16_t *before, const void *data, size_t len,
                     uint64_t places, uint16_t *owner);

/** Besides its owner so many nodes keep a copy of a block. */
#define FLOW_COPIES 2
/** Whether a node has a part in a line, and the nodes that keep copies for it;
 * FLOW_NOBODY: there are fewer others. */
struct flow_kept {
    uint16_t member;
    uint16_t by[FLOW_COPIES];
};
/** Choose them for all members: `member` is given, `by` is filled. They are a
 * third and two thirds of the ring of members away, so that, where there are
 * enough, none of them has a chunk beside one of its, and no two lie side by
 * side; or the nearest to that which are on another host, by `host` ([nodes],
 * equal on the same one; NULL: all are): where there are two hosts neither is
 * on its own, where there are more they are not on one, either. 0 or -ENOMEM.
 */
int flow_partition_keepers(struct flow_kept *kept, const uint32_t *host,
                           unsigned nodes);

/* ---- errors ---- */

/** The first failure of a node, in words that outlive the thread. */
struct flow_failure {
    int code; /**< negative; 0: none */
    struct poise_buf doing, what, why;
};
/** Keep the current context's error, unless one is kept; returns the code. */
int flow_failure_keep(struct flow_failure *failure, int code);
/** Record it as this thread's error; returns its code. */
int flow_failure_set(struct flow_failure *failure);
void flow_failure_free(struct flow_failure *failure);

/** Its address, checked: -ERANGE with the error set. */
int flow_key_of(const struct poise_flow_job *job,
                const struct poise_flow_address *address, struct flow_key *out);
/** Record an error about a block; returns -code. */
int flow_error(const struct poise_flow_job *job, int code, const char *doing,
               const struct poise_flow_address *what, const char *why, ...)
    POISE_PRINTF(5, 6);
/** The same, of a callback that returned `code`, where it, or what it called,
 * has not said why; returns `code`. */
int flow_callback_error(const struct poise_flow_job *job, int code,
                        const char *doing,
                        const struct poise_flow_address *what);

#endif
