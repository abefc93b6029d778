/*
 * poise/grid.h - cut what has two dimensions where its content says so: a
 * screen, a picture, an array of numbers.
 *
 * A cutter gives rectangles (poise_dedup_place, in elements) that cover the
 * grid; what is seen again, elsewhere, is to be cut into the same ones. Their
 * data are sent as pieces of an update (poise_dedup_peer_update).
 *
 * All functions are local; a handle is used by one thread at a time.
 *
 * Source: thesis 7.5 (3.2), 8.5.3.4 to 8.5.3.7.
 */
#ifndef POISE_GRID_H
#define POISE_GRID_H

#include <poise/segment.h>

#ifdef __cplusplus
extern "C" {
#endif

/** An array, row by row; borrowed. */
struct poise_dedup_grid {
    const void *data;
    size_t stride_bytes;    /**< from one row to the next */
    uint32_t element;       /**< bytes of an element */
    uint32_t width, height; /**< elements, at most 2^20 each */
};

enum poise_dedup_grid_method {
    POISE_DEDUP_GRID_TILES,   /**< a raster that never moves (Hextile, MPEG) */
    POISE_DEDUP_GRID_COLUMNS, /**< columns, and rows chosen by content; or rows
                                   and columns, where things move sideways */
    POISE_DEDUP_GRID_BLOCKS,  /**< columns and then rows chosen by content, in
                                   tiles */
    POISE_DEDUP_GRID_WINDOWS, /**< windows chosen by content, anywhere; what
                                   lies between them is never seen again */
    POISE_DEDUP_GRID_METHODS
};
/** "tiles", "columns", "blocks", "windows". */
extern const char *const poise_dedup_grid_names[];

struct poise_dedup_grid_options {
    enum poise_dedup_grid_method method;
    uint32_t width; /**< elements: of columns, or of a side of tiles; 0: 64
                         (columns), 32 (tiles), 256 (tiles of blocks); windows
                         are 16 x 8, one in 64 is chosen */
    uint32_t bits;  /**< one row in 2^bits is chosen; 0: 4 */
    uint32_t min;   /**< elements between two that are chosen; 0: 8 */
    uint32_t max;   /**< elements of a side at most; 0: as many as segments may
                         have */
    uint32_t similar; /**< so many rows that are the same are not chosen from;
                           0: 8, the paper's; 1: no row is similar */
    bool edges;       /**< choose only lines that differ from the one before;
                           instead of `similar` */
    bool still;       /**< do not look whether things move sideways */
};

/** "NAME[,width=N][,bits=N][,min=N][,max=N][,similar=N][,edges][,still]": as
 * many options as are named. -EINVAL; nothing is changed then. */
int poise_dedup_grid_parse(const char *text,
                           struct poise_dedup_grid_options *options);

struct poise_dedup_grid_cutter;
/** -EINVAL: a width, min or max that cannot be. */
int poise_dedup_grid_create(const struct poise_dedup_grid_options *options,
                            struct poise_dedup_grid_cutter **out);
/** NULL is allowed. */
void poise_dedup_grid_destroy(struct poise_dedup_grid_cutter *cutter);
/** Cut a grid: all of it, each element once. `places` are borrowed until the
 * next call; of windows, `likely` of them come first, and only they are worth
 * remembering. Elements of `windows` have 4 bytes: -EOPNOTSUPP. No rectangle
 * has more than POISE_DEDUP_SEGMENT_MOST bytes. */
struct poise_dedup_grid_cuts {
    const struct poise_dedup_place *places;
    size_t count, likely;
    bool sideways; /**< columns were chosen in rows */
};
int poise_dedup_grid_cut(struct poise_dedup_grid_cutter *cutter,
                         const struct poise_dedup_grid *grid,
                         struct poise_dedup_grid_cuts *out);

/* ---- windows ------------------------------------------------------------- */

/** Fingerprints of all windows of 16 x 8 elements of 4 bytes, as Karp and Rabin
 * have it; POISE_DEDUP_WINDOW_BITS leading zeros choose one in 64. */
enum {
    POISE_DEDUP_WINDOW_WIDE = 16, /* two or three letters, of a text */
    POISE_DEDUP_WINDOW_HIGH = 8,
    POISE_DEDUP_WINDOW_BITS = 6
};
/** Sums over rows: `row` enters, `gone`, POISE_DEDUP_WINDOW_HIGH before it,
 * leaves; it may be NULL. */
void poise_dedup_window_roll(uint32_t *sums, const uint32_t *row,
                             const uint32_t *gone, size_t count);
/** The fingerprints of the windows that begin in a row of `count` elements (the
 * last 15 are none), and where those are that are chosen: how many. Both arrays
 * have `count` elements. */
size_t poise_dedup_window_choose(uint32_t *fingerprints, const uint32_t *sums,
                                 size_t count, uint32_t *chosen);

#ifdef __cplusplus
}
#endif

#endif
