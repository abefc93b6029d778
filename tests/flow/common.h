/*
 * Jobs for the tests of room flow: each block is a few words that mix the
 * bytes of all blocks that it depends on, so the last version tells whether
 * anything before it was wrong. The dependencies come in several patterns.
 */
#ifndef POISE_TEST_FLOW_COMMON_H
#define POISE_TEST_FLOW_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poise/flow.h>

enum mix_pattern {
    MIX_STENCIL,  /**< itself and its neighbours in all dimensions */
    MIX_SWEEP,    /**< itself, and those before it in the same version */
    MIX_FFT,      /**< itself and a butterfly's partner */
    MIX_TREE,     /**< its parent */
    MIX_RANDOM,   /**< itself and two by dice */
    MIX_LEAPFROG, /**< itself, two versions back, and neighbours */
    MIX_DATA,     /**< itself and one that its own value names */
    MIX_PATTERNS
};

/** A job of one file, or of two whose second one reads the first. */
struct mix {
    enum mix_pattern pattern;
    struct poise_flow_job job;
    struct poise_flow_file files[2];
    uint64_t *expected; /**< [file][place] of the last version, owned */
    uint64_t *got;      /**< the same, as results come */
    uint64_t places;
    unsigned results;
    uint64_t computed;  /**< calls of compute in this process, atomic */
    uint64_t sleep_ns;  /**< each compute sleeps */
    const double *slow; /**< by node: times as long; NULL: 1 */
    int (*spoil)(struct mix *mix, struct poise_flow_task *task,
                 const struct poise_flow_address *block, uint64_t *value);
    void *spoil_arg;
};

/** `dims` of `side` blocks, `versions` versions. */
void mix_init(struct mix *mix, enum mix_pattern pattern, unsigned dims,
              int64_t side, int64_t versions);
/** A second file: each of its blocks reads the same place of the first one, one
 * version back. */
void mix_second(struct mix *mix);
void mix_free(struct mix *mix);
/** Run, and compare what came out. The code of the run. */
int mix_run(struct mix *mix, struct poise_flow_options *options,
            struct poise_flow_stats *stats);
/** The last error as "cannot ...: ...", in a static buffer. */
const char *mix_error(void);

#endif
