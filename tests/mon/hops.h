/*
 * Clusters of which all is known: what each rank records of calls over a tree,
 * from delays of our own choice, for tests of what tunes trees and for
 * bench/mon. It shares nothing with the model in src/mon/tune, and knows more:
 * processors that send and receive for all ranks of a host, one thing at a
 * time, ports with a bandwidth, lines that sites share, ways that are not alike
 * in both directions, chance.
 */
#ifndef POISE_TESTS_MON_HOPS_H
#define POISE_TESTS_MON_HOPS_H

#include <poise/tune.h>

struct hops {
    int size, nodes, sites;
    struct poise_placement *places; /* [size] */
    double *way_ns;                 /* [nodes * nodes] */
    double *cpu_ns; /* [nodes]: a host is busy with each message, at each end */
    double *port_ns;  /* [nodes]: of a byte, out and in */
    double *line_ns;  /* [sites * sites]: of a byte, on what two sites share */
    double *late_ns;  /* [size]: a rank computes for so long between calls */
    double shared_ns; /* a join by shared memory */
    double noise;     /* share of each way that chance adds, on average */
    struct poise_rng rng;
    uint64_t sequence;
    double now_ns;
    double *left_ns; /* [size]: of the last call */
    double *cpu_free, *out_free, *in_free, *line_free;
};

/** Uniform in [0, 1). */
static inline double hops_random(struct poise_rng *rng)
{
    return (double)(poise_rng_next(rng) >> 11) / 9007199254740992.0;
}

/** `topology` as in poise_world_placement; all ways `lan_ns`, and `wan_ns`
 * between sites. Ends the process without memory. */
struct hops *hops_make(int size, const char *topology, double lan_ns,
                       double wan_ns, double cpu_ns, uint64_t seed);
void hops_free(struct hops *hops);

/** A call of `bytes` over a tree: spans[rank]. */
void hops_call(struct hops *hops, const struct poise_coll_tree *tree,
               double bytes, struct poise_monitor_span *spans);
/** What a call takes: the mean of `calls`, behind two that are left out; an
 * even number, since calls may go in turns, one short and one long. */
double hops_time(struct hops *hops, const struct poise_coll_tree *tree,
                 double bytes, int calls);
/** A tree drawn at random: each rank joins one that was drawn before it. */
struct poise_coll_tree *hops_random_tree(int size, struct poise_rng *rng);

/** What a tuner does with a tree: what a call took at first, and takes over
 * the tree where it settled; trees that it used. */
struct hops_result {
    double first_ns, last_ns;
    int trials;
};
/** `say`: print each step. */
struct hops_result hops_tune(struct hops *hops,
                             const struct poise_coll_tree *tree, double bytes,
                             enum poise_tune_method method,
                             const struct poise_tune_tree *trees, int count,
                             bool say);

/** Generators' trees for a topology, as poise_tune_trees_make. */
struct poise_tune_tree *hops_trees(int size, const char *topology, int *count);
struct poise_coll_tree *hops_shape(int size, const char *topology,
                                   const char *shape);

#endif
