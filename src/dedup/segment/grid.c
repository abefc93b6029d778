/* Cutters of grids: what is asked of them, and what moved. */
#include "grid_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { EXTENT_MOST = 1 << 20, BITS_MOST = 16 };

const char *const poise_dedup_grid_names[] = {"tiles", "columns", "blocks",
                                              "windows"};

static int wrong(const char *what, const char *why)
{
    return poise_error_set(EINVAL, "cut a grid by", what, "%s", why);
}

/* ---- options ------------------------------------------------------------- */

/* "width=64" */
static int parse_option(const char *word, struct poise_dedup_grid_options *out)
{
    const struct {
        const char *name;
        uint32_t *to, most;
    } numbers[] = {{"width=", &out->width, EXTENT_MOST},
                   {"bits=", &out->bits, BITS_MOST},
                   {"min=", &out->min, EXTENT_MOST},
                   {"max=", &out->max, EXTENT_MOST},
                   {"similar=", &out->similar, EXTENT_MOST}};
    if (strcmp(word, "still") == 0) {
        out->still = true;
        return 0;
    }
    if (strcmp(word, "edges") == 0) {
        out->edges = true;
        return 0;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        size_t len = strlen(numbers[i].name);
        if (strncmp(word, numbers[i].name, len) == 0) {
            int64_t value = 0;
            int code = poise_parse_int(word + len, 1, numbers[i].most, &value);
            *numbers[i].to = (uint32_t)value;
            return code;
        }
    }
    return wrong(word, "its options are width=, bits=, min=, max=, similar=, "
                       "edges and still");
}

int poise_dedup_grid_parse(const char *text,
                           struct poise_dedup_grid_options *options)
{
    struct poise_dedup_grid_options result = *options;
    char *words = strdup(text), *rest = NULL;
    if (!words) {
        return poise_error_set(ENOMEM, "cut a grid by", text, NULL);
    }
    const char *name = strtok_r(words, ",", &rest);
    unsigned method = 0;
    while (name && method < POISE_DEDUP_GRID_METHODS &&
           strcmp(name, poise_dedup_grid_names[method]) != 0) {
        method++;
    }
    int code = 0;
    if (!name || method == POISE_DEDUP_GRID_METHODS) {
        code = wrong(text, "there are tiles, columns, blocks and windows");
    }
    result.method = (enum poise_dedup_grid_method)method;
    for (const char *word; code == 0 && (word = strtok_r(NULL, ",", &rest));) {
        code = parse_option(word, &result);
    }
    free(words);
    if (code == 0) {
        *options = result;
    }
    return code;
}

int poise_dedup_grid_create(const struct poise_dedup_grid_options *options,
                            struct poise_dedup_grid_cutter **out)
{
    static const uint32_t widths[] = {32, 64, 256, 16};
    struct poise_dedup_grid_options o = *options;
    if (o.method >= POISE_DEDUP_GRID_METHODS) {
        return wrong(NULL, "there is no such method");
    }
    o.width = o.width ? o.width : widths[o.method];
    o.bits = o.bits ? o.bits : 4;
    o.min = o.min ? o.min : 8;
    o.max = o.max ? o.max : EXTENT_MOST;
    o.similar = o.similar ? o.similar : 8;
    if (o.width > EXTENT_MOST || o.bits > BITS_MOST || o.min > o.max) {
        return wrong(NULL, "its width, bits, min or max cannot be");
    }
    struct poise_dedup_grid_cutter *cutter = poise_alloc(1, sizeof *cutter);
    if (!cutter) {
        return -ENOMEM;
    }
    cutter->options = o;
    *out = cutter;
    return 0;
}

void poise_dedup_grid_destroy(struct poise_dedup_grid_cutter *cutter)
{
    if (cutter) {
        for (int i = 0; i < 2; i++) {
            free(cutter->before[i].prints);
            free(cutter->now[i].prints);
        }
        free(cutter->places);
        free(cutter->prints);
        free(cutter->line);
        free(cutter);
    }
}

int dedup_grid_add(struct poise_dedup_grid_cutter *cutter,
                   const struct poise_dedup_place *place)
{
    if (cutter->count == cutter->room) {
        size_t room = cutter->room ? 2 * cutter->room : 256;
        struct poise_dedup_place *more =
            poise_realloc(cutter->places, room, sizeof *more);
        if (!more) {
            return -ENOMEM;
        }
        cutter->places = more;
        cutter->room = room;
    }
    cutter->places[cutter->count++] = *place;
    return 0;
}

/* ---- fingerprints of lines ----------------------------------------------- */

static int make_room(struct poise_dedup_grid_cutter *cutter, size_t prints,
                     size_t line)
{
    if (prints > cutter->print_room) {
        free(cutter->prints);
        cutter->print_room = 0;
        cutter->prints = poise_alloc(prints, sizeof *cutter->prints);
        cutter->print_room = cutter->prints ? prints : 0;
    }
    if (line > cutter->line_room) {
        free(cutter->line);
        cutter->line_room = 0;
        cutter->line = poise_alloc(line, 1);
        cutter->line_room = cutter->line ? line : 0;
    }
    return cutter->print_room >= prints && cutter->line_room >= line ? 0
                                                                     : -ENOMEM;
}

int dedup_grid_print(struct poise_dedup_grid_cutter *cutter,
                     const struct poise_dedup_grid *grid,
                     const struct dedup_grid_strip *strip)
{
    size_t element = grid->element;
    int code = make_room(cutter, strip->down, (size_t)strip->across * element);
    const unsigned char *at = (const unsigned char *)grid->data +
                              strip->y * grid->stride_bytes +
                              strip->x * element;
    for (uint32_t i = 0; i < strip->down && code == 0; i++) {
        if (!strip->sideways) {
            cutter->prints[i] = poise_hash_bytes(at + i * grid->stride_bytes,
                                                 strip->across * element, 0);
            continue;
        }
        for (uint32_t k = 0; k < strip->across; k++) {
            memcpy(cutter->line + k * element,
                   at + k * grid->stride_bytes + i * element, element);
        }
        cutter->prints[i] =
            poise_hash_bytes(cutter->line, strip->across * element, 0);
    }
    return code;
}

/* ---- movement ------------------------------------------------------------ */

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* The fingerprints of all lines, and, sorted, of one in eight of those that are
 * not where they were: chosen by content, enough to see how many come from
 * elsewhere, few enough to be cheap. */
static int gather(struct poise_dedup_grid_cutter *cutter, uint32_t down,
                  const struct dedup_grid_lines *before,
                  struct dedup_grid_lines *out)
{
    enum { CHOOSE = 7 };
    if (2 * (size_t)down > out->room) {
        free(out->prints);
        out->room = 0;
        out->prints = poise_alloc(2 * (size_t)down, sizeof *out->prints);
        if (!out->prints) {
            return -ENOMEM;
        }
        out->room = 2 * (size_t)down;
    }
    memcpy(out->prints, cutter->prints, down * sizeof *out->prints);
    out->down = down;
    out->count = 0;
    for (uint32_t i = 0; i < down; i++) {
        uint64_t print = cutter->prints[i];
        bool stays = i < before->down && before->prints[i] == print;
        if (!stays && (print & CHOOSE) == 0) {
            out->prints[down + out->count++] = print;
        }
    }
    qsort(out->prints + down, out->count, sizeof *out->prints, by_value);
    return 0;
}

/* How many of the lines that are not where they were were elsewhere. */
static size_t moved(const struct dedup_grid_lines *now,
                    struct dedup_grid_lines *before)
{
    size_t found = 0;
    if (before->down == 0) {
        return 0;
    }
    qsort(before->prints, before->down, sizeof *before->prints, by_value);
    for (size_t i = 0; i < now->count; i++) {
        found +=
            bsearch(&now->prints[now->down + i], before->prints, before->down,
                    sizeof *before->prints, by_value) != NULL;
    }
    return found;
}

int dedup_grid_moved(struct poise_dedup_grid_cutter *cutter,
                     const struct poise_dedup_grid *grid, bool *sideways)
{
    const struct dedup_grid_strip strips[2] = {
        {0, 0, grid->width, grid->height, false},
        {0, 0, grid->height, grid->width, true}};
    double shares[2];
    for (int i = 0; i < 2; i++) {
        struct dedup_grid_lines *now = &cutter->now[i],
                                *before = &cutter->before[i];
        int code = dedup_grid_print(cutter, grid, &strips[i]);
        code = code == 0 ? gather(cutter, strips[i].down, before, now) : code;
        if (code < 0) {
            return code;
        }
        shares[i] = now->count > 0
                        ? (double)moved(now, before) / (double)now->count
                        : 0;
        struct dedup_grid_lines old = *before;
        *before = *now;
        *now = old;
    }
    /* What moves sideways changes most rows, and few columns. */
    *sideways = shares[1] > shares[0];
    return 0;
}

/* ---- all of it ----------------------------------------------------------- */

int poise_dedup_grid_cut(struct poise_dedup_grid_cutter *cutter,
                         const struct poise_dedup_grid *grid,
                         struct poise_dedup_grid_cuts *out)
{
    bool sideways = false;
    int code = 0;
    if (grid->width > EXTENT_MOST || grid->height > EXTENT_MOST ||
        grid->element == 0 || grid->element > POISE_DEDUP_SEGMENT_MOST) {
        return wrong(NULL, "it is too large, or its elements are");
    }
    cutter->count = 0;
    cutter->likely = SIZE_MAX;
    if (grid->width == 0 || grid->height == 0) {
        *out = (struct poise_dedup_grid_cuts){cutter->places, 0, 0, false};
        return 0;
    }
    switch (cutter->options.method) {
    case POISE_DEDUP_GRID_COLUMNS:
        code = cutter->options.still
                   ? 0
                   : dedup_grid_moved(cutter, grid, &sideways);
        code = code == 0 ? dedup_grid_columns(cutter, grid, sideways) : code;
        break;
    case POISE_DEDUP_GRID_BLOCKS:
        code = dedup_grid_blocks(cutter, grid);
        break;
    case POISE_DEDUP_GRID_WINDOWS:
        code = dedup_grid_windows(cutter, grid);
        break;
    default:
        code = dedup_grid_tiles(cutter, grid);
    }
    if (code < 0) {
        return code;
    }
    *out = (struct poise_dedup_grid_cuts){
        cutter->places, cutter->count,
        cutter->likely < cutter->count ? cutter->likely : cutter->count,
        sideways};
    return 0;
}
