/* How grids are cut, method by method. */
#include "grid_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Lines of so many elements that a segment may have. */
static uint32_t most_lines(const struct poise_dedup_grid_cutter *cutter,
                           const struct poise_dedup_grid *grid, uint32_t across)
{
    uint64_t most =
        POISE_DEDUP_SEGMENT_MOST / ((uint64_t)across * grid->element);
    return most == 0 ? 1 : least((uint32_t)most, cutter->options.max);
}

/* A side of tiles, or of columns, of which at least one line is a segment. */
static uint32_t most_across(const struct poise_dedup_grid_cutter *cutter,
                            const struct poise_dedup_grid *grid)
{
    return least(cutter->options.width,
                 POISE_DEDUP_SEGMENT_MOST / grid->element);
}

/* ---- tiles --------------------------------------------------------------- */

int dedup_grid_tiles(struct poise_dedup_grid_cutter *cutter,
                     const struct poise_dedup_grid *grid)
{
    uint32_t across = most_across(cutter, grid);
    uint32_t down =
        least(cutter->options.width, most_lines(cutter, grid, across));
    for (uint32_t y = 0; y < grid->height; y += down) {
        for (uint32_t x = 0; x < grid->width; x += across) {
            struct poise_dedup_place place = {x, y,
                                              least(across, grid->width - x),
                                              least(down, grid->height - y)};
            if (dedup_grid_add(cutter, &place) < 0) {
                return -ENOMEM;
            }
        }
    }
    return 0;
}

/* ---- columns ------------------------------------------------------------- */

/* Whether a line is one of a run of equal ones. */
static uint32_t run_length(const uint64_t *prints, uint32_t at, uint32_t down)
{
    uint32_t end = at + 1;
    while (end < down && prints[end] == prints[at]) {
        end++;
    }
    return end - at;
}

/* The paper's three steps in one pass: fingerprints are there; those of a run
 * of `similar` lines are passed over; one is chosen if its leading bits are
 * zeros, `min` lines behind the last one. The line that is chosen begins a
 * segment. */
uint32_t dedup_grid_next(const struct poise_dedup_grid_cutter *cutter,
                         uint32_t from, uint32_t down, uint32_t most)
{
    const struct poise_dedup_grid_options *o = &cutter->options;
    uint32_t end = down - from < most ? down : from + most;
    uint32_t first = down - from < o->min ? down : from + o->min;
    for (uint32_t i = first; i < end;) {
        uint32_t run = run_length(cutter->prints, i, down);
        bool similar = o->edges
                           ? i > 0 && cutter->prints[i] == cutter->prints[i - 1]
                           : o->similar > 1 && run >= o->similar;
        if (!similar && cutter->prints[i] >> (64 - o->bits) == 0) {
            return i;
        }
        i += similar ? run : 1;
    }
    return end;
}

static int cut_strip(struct poise_dedup_grid_cutter *cutter,
                     const struct poise_dedup_grid *grid,
                     const struct dedup_grid_strip *strip)
{
    uint32_t most = most_lines(cutter, grid, strip->across);
    int code = dedup_grid_print(cutter, grid, strip);
    for (uint32_t at = 0; at < strip->down && code == 0;) {
        uint32_t next = dedup_grid_next(cutter, at, strip->down, most);
        struct poise_dedup_place place = {strip->x, strip->y + at,
                                          strip->across, next - at};
        if (strip->sideways) {
            place = (struct poise_dedup_place){strip->x + at, strip->y,
                                               next - at, strip->across};
        }
        code = dedup_grid_add(cutter, &place);
        at = next;
    }
    return code;
}

int dedup_grid_columns(struct poise_dedup_grid_cutter *cutter,
                       const struct poise_dedup_grid *grid, bool sideways)
{
    uint32_t width = most_across(cutter, grid);
    uint32_t all = sideways ? grid->height : grid->width;
    uint32_t down = sideways ? grid->width : grid->height;
    int code = 0;
    for (uint32_t at = 0; at < all && code == 0; at += width) {
        struct dedup_grid_strip strip = {sideways ? 0 : at, sideways ? at : 0,
                                         least(width, all - at), down,
                                         sideways};
        code = cut_strip(cutter, grid, &strip);
    }
    return code;
}

/* ---- blocks -------------------------------------------------------------- */

/* In a tile: columns by what is in all of their rows, then rows in each. */
static int cut_tile(struct poise_dedup_grid_cutter *cutter,
                    const struct poise_dedup_grid *grid, uint32_t x, uint32_t y)
{
    uint32_t width = cutter->options.width;
    struct dedup_grid_strip tile = {x, y, least(width, grid->height - y),
                                    least(width, grid->width - x), true};
    uint32_t most =
        least(POISE_DEDUP_SEGMENT_MOST / grid->element, cutter->options.max);
    uint32_t *cuts = poise_alloc((size_t)tile.down + 1, sizeof *cuts);
    size_t count = 0;
    int code = cuts ? dedup_grid_print(cutter, grid, &tile) : -ENOMEM;
    for (uint32_t at = 0; code == 0 && at < tile.down; count++) {
        at = cuts[count] = dedup_grid_next(cutter, at, tile.down, most);
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        uint32_t from = i > 0 ? cuts[i - 1] : 0;
        struct dedup_grid_strip strip = {x + from, y, cuts[i] - from,
                                         tile.across, false};
        code = cut_strip(cutter, grid, &strip);
    }
    free(cuts);
    return code;
}

int dedup_grid_blocks(struct poise_dedup_grid_cutter *cutter,
                      const struct poise_dedup_grid *grid)
{
    uint32_t width = cutter->options.width;
    int code = 0;
    for (uint32_t y = 0; y < grid->height; y += width) {
        for (uint32_t x = 0; x < grid->width && code == 0; x += width) {
            code = cut_tile(cutter, grid, x, y);
        }
    }
    return code;
}

/* ---- windows ------------------------------------------------------------- */

/* Fingerprints of `side` x `side` windows, one row of them at a time. */
struct sieve {
    uint32_t *sums, *prints, *chosen;
    unsigned char *taken; /* elements that lie in a window */
};

static int sieve_make(struct sieve *sieve, const struct poise_dedup_grid *grid)
{
    sieve->sums = poise_alloc(grid->width, sizeof *sieve->sums);
    sieve->prints = poise_alloc(grid->width, sizeof *sieve->prints);
    sieve->chosen = poise_alloc(grid->width, sizeof *sieve->chosen);
    sieve->taken = poise_alloc((size_t)grid->width * grid->height, 1);
    return sieve->sums && sieve->prints && sieve->chosen && sieve->taken
               ? 0
               : -ENOMEM;
}

static void sieve_free(struct sieve *sieve)
{
    free(sieve->sums);
    free(sieve->prints);
    free(sieve->chosen);
    free(sieve->taken);
}

static bool take(unsigned char *taken, uint32_t width,
                 const struct poise_dedup_place *place)
{
    for (uint32_t y = 0; y < place->height; y++) {
        if (memchr(taken + (place->y + y) * (size_t)width + place->x, 1,
                   place->width)) {
            return false;
        }
    }
    for (uint32_t y = 0; y < place->height; y++) {
        memset(taken + (place->y + y) * (size_t)width + place->x, 1,
               place->width);
    }
    return true;
}

/* Windows whose last row is `y` that are chosen and overlap no other. */
static int take_row(struct poise_dedup_grid_cutter *cutter,
                    const struct poise_dedup_grid *grid, struct sieve *sieve,
                    uint32_t y)
{
    const uint32_t high = POISE_DEDUP_WINDOW_HIGH;
    const unsigned char *row =
        (const unsigned char *)grid->data + y * grid->stride_bytes;
    poise_dedup_window_roll(
        sieve->sums, (const uint32_t *)(const void *)row,
        y >= high
            ? (const uint32_t *)(const void *)(row - high * grid->stride_bytes)
            : NULL,
        grid->width);
    size_t count = y + 1 >= high
                       ? poise_dedup_window_choose(sieve->prints, sieve->sums,
                                                   grid->width, sieve->chosen)
                       : 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t x = sieve->chosen[i];
        struct poise_dedup_place place = {x, y + 1 - high,
                                          POISE_DEDUP_WINDOW_WIDE, high};
        if ((x == 0 || sieve->prints[x] != sieve->prints[x - 1]) &&
            take(sieve->taken, grid->width, &place) &&
            dedup_grid_add(cutter, &place) < 0) {
            return -ENOMEM;
        }
    }
    return 0;
}

/* What lies between: as wide as it can be, then as high. */
static int fill_gaps(struct poise_dedup_grid_cutter *cutter,
                     const struct poise_dedup_grid *grid, unsigned char *taken)
{
    for (uint32_t y = 0; y < grid->height; y++) {
        unsigned char *row = taken + (size_t)y * grid->width;
        for (uint32_t x = 0; x < grid->width; x++) {
            if (row[x]) {
                continue;
            }
            uint32_t end = x, most = most_across(cutter, grid) * 4;
            while (end < grid->width && !row[end] && end - x < most) {
                end++;
            }
            struct poise_dedup_place place = {x, y, end - x, 1};
            uint32_t lines = most_lines(cutter, grid, end - x);
            take(taken, grid->width, &place);
            while (place.height < lines && y + place.height < grid->height &&
                   take(taken, grid->width,
                        &(struct poise_dedup_place){x, y + place.height,
                                                    end - x, 1})) {
                place.height++;
            }
            if (dedup_grid_add(cutter, &place) < 0) {
                return -ENOMEM;
            }
        }
    }
    return 0;
}

int dedup_grid_windows(struct poise_dedup_grid_cutter *cutter,
                       const struct poise_dedup_grid *grid)
{
    struct sieve sieve = {0};
    if (grid->element != sizeof(uint32_t) ||
        grid->stride_bytes % sizeof(uint32_t) != 0) {
        return poise_error_set(EOPNOTSUPP, "cut a grid by", "windows",
                               "its elements do not have 4 bytes");
    }
    int code = sieve_make(&sieve, grid);
    for (uint32_t y = 0; y < grid->height && code == 0; y++) {
        code = take_row(cutter, grid, &sieve, y);
    }
    cutter->likely = cutter->count;
    code = code == 0 ? fill_gaps(cutter, grid, sieve.taken) : code;
    sieve_free(&sieve);
    return code;
}
