/*
 * What the files that tune trees share: hops as numbers, calls as predictions.
 */
#ifndef POISE_MON_TUNE_INTERNAL_H
#define POISE_MON_TUNE_INTERNAL_H

#include <poise/core.h>
#include <poise/trace_clock.h>
#include <poise/tune.h>

/* Which ways a call takes. Of one way rank 0 is at the other end, and the only
 * root of a tree that is worth a look. */
enum tune_flow { TUNE_BOTH_WAYS, TUNE_DOWN, TUNE_UP };

/* ---- what hops cost (costs.c) -------------------------------------------- */

/*
 * Times in ns. A message from node a to node b keeps a busy for busy[a], is
 * ways[a][b] on its way, and keeps b busy: for as long as the slower of the
 * two, since both begin at once.
 */
struct tune_costs {
    int size, nodes, sites;
    enum tune_flow flow;
    int *node_of;   /* [size] */
    int *site_of;   /* [nodes] */
    double *busy;   /* [nodes] */
    bool is_duplex; /* a host receives while it sends */
    /* By how much ways up differ from those down, in the calls that were
     * learned from last, and in all, per call: without and with that. */
    double residual_ns, misfit[2];
    double *gap;      /* [nodes]: busy, by the host's own samples alone */
    int *gap_samples; /* [nodes] */
    double usual_gap;
    double *ways;   /* [nodes * nodes] */
    double *late;   /* [size]: what a rank takes between two calls, more than
                       the quickest */
    double between; /* what the quickest takes */
    double shared;  /* a join in shared memory */
    bool *has_way;  /* [nodes * nodes] */
};

int tune_costs_make(const struct poise_placement *places, int size,
                    struct tune_costs *out);
void tune_costs_free(struct tune_costs *costs);
/* Nothing is known any more. */
void tune_costs_forget(struct tune_costs *costs);

/* What a rank recorded of a call, ns. */
struct tune_hop {
    double enter, arrived, released, left;
};
/* Calls over one tree, in order. */
struct tune_calls {
    int size, count;
    const struct tune_hop *hops; /* [count * size] */
    const bool *follows; /* [count]: a call came right behind the one before */
};
/* Learn what hops cost from calls over the tree `parent`. -ENOMEM. */
int tune_costs_learn(struct tune_costs *costs, const int *parent,
                     const struct tune_calls *calls);
/* What a call took, with what is between two calls: the median over ranks of
 * the median over calls; 0: no two follow each other. `space` is for the larger
 * of ranks and calls, of each. */
double tune_period(const struct tune_calls *calls, double *space[2]);
/* What a call took from the last arrival to the last departure: the median.
 * `space` is for the calls. */
double tune_latency(const struct tune_calls *calls, double *space);
double tune_median(double *values, int count);

/* ---- what calls would take (predict.c) ----------------------------------- */

/* Where the slowest path's time goes. */
struct tune_path {
    double parts[POISE_TUNE_CAUSES]; /* ns */
    int root;                        /* where the path has its top */
    int busiest;  /* rank whose node has the most of departure or load */
    int late;     /* the rank from which the path starts */
    int from, to; /* ranks of the longest way on it; -1: none */
    int *ranks;   /* [count]: on the path, from its start to its end */
    int count;
};

struct tune_predict;
int tune_predict_make(const struct tune_costs *costs,
                      struct tune_predict **out);
void tune_predict_free(struct tune_predict *predict);
/* What a call takes, of many over this tree; `path` may be NULL, its ranks are
 * the predictor's until the next call. */
double tune_predict_call(struct tune_predict *predict, const int *parent,
                         struct tune_path *path);

/* ---- what to change (change.c) ------------------------------------------- */

struct tune_change {
    int *parent;                /* [size]: the new tree, the caller's */
    double before_ns, after_ns; /* what a call is expected to take */
    enum poise_tune_cause cause;
    bool is_found; /* there is one that is expected to be faster, or might be */
};
/* Trees that were used already, by their hash; the newest. */
struct tune_used {
    uint64_t hashes[64];
    unsigned count;
};
uint64_t tune_hash(const int *parent, int size);
bool tune_is_used(const struct tune_used *used, uint64_t hash);

/*
 * The tree that is expected to be the fastest and was not used yet: found from
 * `parent`, by changing what lies on the slowest path, or among `trees`. Where
 * no change is expected to be faster, what may take `limit` times as long as
 * `parent` will do: expectations are not exact. Says in
 * `reason` what holds calls up, and what is changed. -ENOMEM.
 */
int tune_change_find(const struct tune_costs *costs,
                     struct tune_predict *predict, const int *parent,
                     double limit, const struct poise_tune_options *options,
                     const struct tune_used *used, struct tune_change *out,
                     struct poise_buf *reason);
/* Ranks `a` and `b` change places in a tree; those of their hosts that join
 * them by shared memory stay with them, so that it may close a circle. */
void tune_swap(int *parent, const int *node_of, int size, int a, int b);
bool tune_is_tree(const int *parent, int size);

#endif
