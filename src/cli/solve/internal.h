/* poise solve: what its files share. */
#ifndef POISE_CLI_SOLVE_H
#define POISE_CLI_SOLVE_H

#include <poise/heat.h>

#include "cli/flow/flow.h"

/** A plate as it is read or written. */
struct cli_plate {
    int64_t rows, columns;
    double *cells;    /**< [rows][columns], owned */
    double white;     /**< of an image: its greatest value; 0: a matrix */
    double low, high; /**< least and greatest cell, where it was read */
};

/** Read an image (PGM, PPM) or a matrix of numbers as text. 0, or negative
 * with the error set. */
int cli_plate_read(const char *path, struct cli_plate *out);
/** Write it as the end of the path says: .pgm (grey), .ppm (from blue by white
 * to red), else a matrix that reads as the very same numbers. */
int cli_plate_write(const struct cli_plate *plate, const char *path);
void cli_plate_free(struct cli_plate *plate);

/** Side of a block where none is given (struct poise_flow_heat). */
enum { CLI_SOLVE_BLOCK = 128 };

/** A run to be shown. */
struct cli_solve_outcome {
    const char *in;
    bool checked; /**< blocks were computed twice */
    const struct cli_plate *before, *after;
    const struct poise_flow_heat *heat;
    const struct poise_flow_stats *stats;
    const double *changes;       /**< [heat->sweeps], or NULL */
    uint64_t change_blocks;      /**< beside those of `stats`: of `changes` */
    const struct cli_live *live; /**< how it went; NULL: nobody looked */
};
/** The report: convergence, nodes. */
int cli_solve_page(const struct cli_solve_outcome *run, struct poise_buf *out);

#endif
