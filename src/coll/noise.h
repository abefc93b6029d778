/*
 * poise/noise.h - the noise benchmark.
 *
 * How much the operating system disturbs: each rank multiplies matrices for a
 * quantum of time, again and again, with or without an allreduce of 8 bytes
 * behind it. An iteration is delayed by a threshold if on at least one rank it
 * took longer than that rank's median by more than the threshold.
 *
 * Source: thesis 8.2, table 14.
 */
#ifndef POISE_NOISE_H
#define POISE_NOISE_H

#include <poise/coll.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    POISE_NOISE_COMPUTATION,
    POISE_NOISE_ALLREDUCE,
    POISE_NOISE_ITERATION,
    POISE_NOISE_ROWS
};
enum { POISE_NOISE_THRESHOLDS = 4 };

struct poise_coll_noise_options {
    uint64_t quantum_ns; /**< 0: the mean of an allreduce by itself */
    uint32_t iterations;
    bool allreduce; /**< also communicate */
};
struct poise_coll_noise {
    uint64_t quantum_ns;
    /** The mean of an allreduce by itself; 2, 5, 10 ms. */
    uint64_t thresholds_ns[POISE_NOISE_THRESHOLDS];
    struct poise_coll_noise_row {
        double mean_ns, deviation_ns; /**< over all ranks and iterations */
        uint64_t delayed[POISE_NOISE_THRESHOLDS]; /**< iterations */
    } rows[POISE_NOISE_ROWS];
};
/** Collective; all get the same. -EINVAL: no iterations. */
POISE_API int poise_coll_noise(struct poise_coll *coll,
                               const struct poise_coll_noise_options *options,
                               struct poise_coll_noise *out);

#ifdef __cplusplus
}
#endif

#endif
