/* Between grid.c, which is asked, and grid_cut.c, which cuts. */
#ifndef POISE_DEDUP_SEGMENT_GRID_INTERNAL_H
#define POISE_DEDUP_SEGMENT_GRID_INTERNAL_H

#include "internal.h"

#include <poise/grid.h>

/** Fingerprints of all rows, or columns, and behind them of those that were
 * chosen, sorted. */
struct dedup_grid_lines {
    uint64_t *prints; /**< owned */
    size_t down, count, room;
};

struct poise_dedup_grid_cutter {
    struct poise_dedup_grid_options options; /**< none is 0 */
    struct poise_dedup_place *places;        /**< owned */
    size_t count, room, likely;
    uint64_t *prints; /**< owned scratch: of rows of a column */
    size_t print_room;
    unsigned char *line; /**< owned scratch: a row that lies down the grid */
    size_t line_room;
    /** Of the grid before, and of this one: rows, columns. */
    struct dedup_grid_lines before[2], now[2];
};

/** A part of a grid in which lines are chosen: `across` elements belong to each
 * of its `down` lines; sideways lines are columns. */
struct dedup_grid_strip {
    uint32_t x, y, across, down;
    bool sideways;
};
int dedup_grid_add(struct poise_dedup_grid_cutter *cutter,
                   const struct poise_dedup_place *place);
/** Fingerprints of a strip's lines, into cutter->prints. */
int dedup_grid_print(struct poise_dedup_grid_cutter *cutter,
                     const struct poise_dedup_grid *grid,
                     const struct dedup_grid_strip *strip);
/** Whether things moved sideways, mostly, since the grid before. */
int dedup_grid_moved(struct poise_dedup_grid_cutter *cutter,
                     const struct poise_dedup_grid *grid, bool *sideways);
/** The next line at which the strip is cut, from `from` on; its lines' number
 * at the end. */
uint32_t dedup_grid_next(const struct poise_dedup_grid_cutter *cutter,
                         uint32_t from, uint32_t down, uint32_t most);
int dedup_grid_tiles(struct poise_dedup_grid_cutter *cutter,
                     const struct poise_dedup_grid *grid);
int dedup_grid_columns(struct poise_dedup_grid_cutter *cutter,
                       const struct poise_dedup_grid *grid, bool sideways);
int dedup_grid_blocks(struct poise_dedup_grid_cutter *cutter,
                      const struct poise_dedup_grid *grid);
int dedup_grid_windows(struct poise_dedup_grid_cutter *cutter,
                       const struct poise_dedup_grid *grid);

#endif
