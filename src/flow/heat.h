/*
 * poise/heat.h - heat on a plate, a program on top of <poise/flow.h>.
 */
#ifndef POISE_HEAT_H
#define POISE_HEAT_H

#include <poise/flow.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Successive over-relaxation goes in half sweeps, the cells of one colour of
 * a chessboard and then the others, each of which is a version. */
enum poise_flow_method { POISE_FLOW_JACOBI, POISE_FLOW_SOR };
/** Their names, NULL-terminated. */
POISE_API extern const char *const poise_flow_method_names[];

/** The temperature of a plate that comes to rest: what poise solve computes,
 * and the kernel of desyncfs 5. Zero is the default where one is named.
 * Everything in it is borrowed. */
struct poise_flow_heat {
    int64_t rows, columns;
    const double *cells; /**< [rows][columns], at the beginning */
    const bool *held;    /**< [rows][columns]: stays as it is; NULL: none */
    bool insulated;      /**< the edge is free and lets nothing through; else
                              the outermost cells stay as they are */
    enum poise_flow_method method;
    double omega; /**< over-relaxation, between 0 and 2; 0: 1 */
    int64_t sweeps;
    int64_t block; /**< longest side of a block, in cells; 0: 128 */
    /** As in struct poise_flow_file; the chunks are of blocks and versions, the
     * first of which is the beginning. */
    const struct poise_flow_part *parts;
    size_t part_count;
    int64_t adapt;
    /** Emulation of unequal nodes of one thread: a block takes as long as this,
     * times the node's factor, from when the one before was over, or from when
     * the last of its dependencies came, if that was later. 0: none. */
    uint64_t block_ns;
    const double *slow; /**< [slow_count] factors by node; others have 1 */
    unsigned slow_count;
    const double *later; /**< [slow_count], from version `later_from` on; NULL:
                              the same */
    int64_t later_from;
};

/**
 * Compute it. `cells` receives [rows][columns]; it may be the beginning's
 * array. `changes`, unless NULL, receives [sweeps] greatest changes of a cell.
 * 0, or negative: -EINVAL for shapes and factors that make no sense, and what
 * poise_flow_run returns. Nodes beyond one for each block are not started.
 */
POISE_API int poise_flow_heat_run(const struct poise_flow_heat *heat,
                                  const struct poise_flow_options *options,
                                  double *cells, double *changes,
                                  struct poise_flow_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
