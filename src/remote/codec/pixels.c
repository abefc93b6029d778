/*
 * Pixels of a rectangle as bytes that the compressed stream makes little of.
 *
 * They are written in one of these forms, after a byte that says which:
 *   rows and columns that repeat the one before are left out, and said so by
 *     bits; of what is left, row by row, one byte for each pixel (its number in
 *     the table of colours), or three planes of bytes, as they are or as
 *     differences from their neighbours;
 *   if no two colours of few have the same green, as in grey pictures and in
 *     many maps of colours: which numbers there are, and one plane;
 *   strips of rows, each of them column by column, one byte for each pixel:
 *     lines of text, in which letters and words are the same bytes again
 *     wherever they begin. Strips end where an empty row does.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

/* The byte of the form. */
enum {
    STRIPS = 1,
    ROWS = 2,     /* repeated ones are left out */
    COLUMNS = 4,  /* the same */
    PLANES = 8,   /* no numbers of colours */
    PREDICT = 16, /* times the predictor */
    PREDICT_MASK = 7 * PREDICT,
    PASSING = 128,          /* not for the history */
    GREEN = STRIPS | PLANES /* one plane says which colour */
};
static const struct codec_planes all_planes = {0, 3}, green_plane = {1, 2};

enum {
    STRIP_LEAST = 4,
    STRIP_MOST = 48,
    TRIAL_PIXELS = 1 << 13 /* of a large rectangle, to choose a form by */
};

void codec_pixels_begin(struct codec_pixels *pixels)
{
    pixels->colours = (struct codec_colours){.turn = 0};
}

void codec_pixels_free(struct codec_pixels *pixels)
{
    free(pixels->matrix);
    free(pixels->flags);
    poise_buf_free(&pixels->trial);
    poise_buf_free(&pixels->packed);
    ZSTD_freeCCtx(pixels->zstd);
    *pixels = (struct codec_pixels){0};
}

static int make_room(struct codec_pixels *pixels, size_t area, size_t flags)
{
    if (area > pixels->matrix_room) {
        free(pixels->matrix);
        pixels->matrix_room = 0;
        pixels->matrix = poise_alloc(area, sizeof *pixels->matrix);
        if (!pixels->matrix) {
            return -ENOMEM;
        }
        pixels->matrix_room = area;
    }
    if (flags > pixels->flags_room) {
        free(pixels->flags);
        pixels->flags_room = 0;
        pixels->flags = poise_alloc(flags, 1);
        if (!pixels->flags) {
            return -ENOMEM;
        }
        pixels->flags_room = flags;
    }
    return 0;
}

/* ---- colours ------------------------------------------------------------- */

/* A number for each colour of a rectangle, found by hashing. */
struct lookup {
    uint32_t colour[CODEC_COLOUR_SLOTS];
    int16_t number[CODEC_COLOUR_SLOTS]; /* -1: free */
    unsigned count;
};

static unsigned slot_of(const struct lookup *lookup, uint32_t colour)
{
    unsigned slot = (colour * 0x9e3779b1u) >> 22; /* of 2^10 */
    while (lookup->number[slot] >= 0 && lookup->colour[slot] != colour) {
        slot = (slot + 1) % CODEC_COLOUR_SLOTS;
    }
    return slot;
}

static bool is_new(struct lookup *lookup, uint32_t colour)
{
    unsigned slot = slot_of(lookup, colour);
    if (lookup->number[slot] >= 0) {
        return false;
    }
    lookup->colour[slot] = colour;
    lookup->number[slot] = 0;
    lookup->count++;
    return true;
}

/* How many pixels from the first one on are as it is, of `count`; many at a
 * time, since most are. */
static size_t run_of(const uint32_t *pixels, size_t count)
{
    enum { STEP = 8 };
    size_t n = 1;
    while (n + STEP <= count) {
        uint32_t differ = 0;
        for (int i = 0; i < STEP; i++) {
            differ |= pixels[n + i] ^ *pixels;
        }
        if (differ != 0) {
            break;
        }
        n += STEP;
    }
    while (n < count && pixels[n] == *pixels) {
        n++;
    }
    return n;
}

/* All colours of a rectangle, if they are not too many. */
static bool gather(struct lookup *lookup,
                   const struct poise_screen_picture *picture,
                   const struct poise_screen_rect *rect)
{
    memset(lookup->number, 0xff, sizeof lookup->number);
    lookup->count = 0;
    uint32_t last = ~*codec_at(picture, rect->x, rect->y);
    for (uint32_t y = rect->y; y < rect->y + rect->height; y++) {
        const uint32_t *row = codec_at(picture, rect->x, y);
        for (size_t x = 0; x < rect->width;
             x += run_of(row + x, rect->width - x)) {
            if (row[x] != last) {
                last = row[x];
                if (is_new(lookup, last) && lookup->count > CODEC_COLOURS) {
                    return false;
                }
            }
        }
    }
    return true;
}

/* A number for each of them; those that have none take the place of those that
 * were not used for longest. What is new goes to `out`. */
static void give_numbers(struct codec_colours *colours, struct lookup *lookup,
                         struct poise_buf *out)
{
    unsigned missing = 0;
    colours->turn++;
    for (unsigned i = 0; i < CODEC_COLOURS; i++) {
        unsigned slot = slot_of(lookup, colours->colour[i]);
        if (colours->used[i] > 0 && lookup->number[slot] == 0 &&
            lookup->colour[slot] == colours->colour[i]) {
            lookup->number[slot] = (int16_t)(i + 1);
            colours->used[i] = colours->turn;
        }
    }
    for (unsigned slot = 0; slot < CODEC_COLOUR_SLOTS; slot++) {
        missing += lookup->number[slot] == 0;
    }
    poise_buf_varint(out, missing);
    for (unsigned slot = 0; slot < CODEC_COLOUR_SLOTS && missing > 0; slot++) {
        if (lookup->number[slot] != 0) {
            continue;
        }
        unsigned oldest = 0;
        for (unsigned i = 1; i < CODEC_COLOURS; i++) {
            if (colours->used[i] < colours->used[oldest]) {
                oldest = i;
            }
        }
        uint32_t colour = lookup->colour[slot];
        colours->colour[oldest] = colour;
        colours->used[oldest] = colours->turn;
        lookup->number[slot] = (int16_t)(oldest + 1);
        char bytes[4] = {(char)oldest, (char)colour, (char)(colour >> 8),
                         (char)(colour >> 16)};
        poise_buf_append(out, bytes, sizeof bytes);
        missing--;
    }
}

static uint8_t number_of(const struct lookup *lookup, uint32_t colour)
{
    return (uint8_t)(lookup->number[slot_of(lookup, colour)] - 1);
}

static void put_numbers(const struct lookup *lookup, const uint32_t *from,
                        size_t count, uint8_t *to)
{
    for (size_t i = 0, n; i < count; i += n) {
        n = run_of(from + i, count - i);
        memset(to + i, number_of(lookup, from[i]), n);
    }
}

/* The same of a column of pixels that are `step` apart. */
static void put_column(const struct lookup *lookup, const uint32_t *from,
                       size_t step, size_t count, uint8_t *to)
{
    uint32_t last = ~*from;
    uint8_t number = 0;
    for (size_t i = 0; i < count; i++, from += step) {
        if (*from != last) {
            last = *from;
            number = number_of(lookup, last);
        }
        to[i] = number;
    }
}

/* ---- strips -------------------------------------------------------------- */

static bool is_empty(const uint32_t *row, uint32_t width)
{
    return memcmp(row, row + 1, (width - 1) * sizeof *row) == 0;
}

/* How many rows the strip at `y` has, of those that are left. */
static uint32_t strip_height(const struct poise_screen_picture *picture,
                             const struct poise_screen_rect *rect, uint32_t y)
{
    uint32_t left = rect->y + rect->height - y;
    uint32_t most = left < STRIP_MOST ? left : STRIP_MOST;
    bool empty = is_empty(codec_at(picture, rect->x, y), rect->width);
    for (uint32_t n = 1; n < most; n++) {
        bool was = empty;
        empty = is_empty(codec_at(picture, rect->x, y + n), rect->width);
        if (was && !empty && n >= STRIP_LEAST) {
            return n;
        }
    }
    return most;
}

static void put_strips(const struct lookup *lookup,
                       const struct poise_screen_picture *picture,
                       const struct poise_screen_rect *rect,
                       struct poise_buf *out)
{
    for (uint32_t y = rect->y; y < rect->y + rect->height;) {
        uint32_t rows = strip_height(picture, rect, y);
        size_t area = (size_t)rows * rect->width;
        poise_buf_putc(out, (char)rows);
        uint8_t *to = (uint8_t *)poise_buf_reserve(out, area);
        for (uint32_t x = 0; to && x < rect->width; x++, to += rows) {
            put_column(lookup, codec_at(picture, rect->x + x, y),
                       picture->width, rows, to);
        }
        out->len += to ? area : 0;
        y += rows;
    }
}

static int bad(const char *why)
{
    return poise_error_set(EBADMSG, "understand a screen's message", NULL, "%s",
                           why);
}

static int get_strips(const struct codec_colours *colours,
                      struct poise_reader *in,
                      const struct poise_screen_rect *rect,
                      struct poise_screen_picture *picture)
{
    for (uint32_t y = rect->y; y < rect->y + rect->height;) {
        uint32_t rows = poise_reader_left(in) > 0 ? *in->pos++ : 0;
        size_t area = (size_t)rows * rect->width;
        if (rows == 0 || rows > rect->y + rect->height - y ||
            area > poise_reader_left(in)) {
            return bad("a strip is damaged");
        }
        for (uint32_t x = 0; x < rect->width; x++) {
            uint32_t *to = codec_at(picture, rect->x + x, y);
            for (uint32_t n = 0; n < rows; n++, to += picture->width) {
                *to = colours->colour[*in->pos++];
            }
        }
        y += rows;
    }
    return 0;
}

/* ---- rows and columns that are repeated ---------------------------------- */

/* Which rows and columns differ from the one before; of the rectangle, into a
 * matrix of those that do. The flags of columns are behind those of rows. */
struct reduced {
    uint8_t *rows, *columns;
    uint32_t width, height; /* of the matrix */
};

static void mark(const struct poise_screen_picture *picture,
                 const struct poise_screen_rect *rect, struct reduced *out)
{
    memset(out->columns, 0, rect->width);
    out->columns[0] = 1;
    out->width = out->height = 0;
    for (uint32_t y = 0; y < rect->height; y++) {
        const uint32_t *row = codec_at(picture, rect->x, rect->y + y);
        out->rows[y] = y == 0 || memcmp(row, row - picture->width,
                                        rect->width * sizeof *row) != 0;
        if (!out->rows[y]) {
            continue;
        }
        out->height++;
        for (uint32_t x = 1; x < rect->width; x++) {
            out->columns[x] |= row[x] != row[x - 1];
        }
    }
    for (uint32_t x = 0; x < rect->width; x++) {
        out->width += out->columns[x];
    }
}

/* Leave out what is repeated, where that is enough to be said; the form. */
static int reduce(unsigned without, const struct poise_screen_picture *picture,
                  const struct poise_screen_rect *rect, struct reduced *out,
                  uint32_t *matrix)
{
    enum { ENOUGH = 8 }; /* one in so many */
    int form = 0;
    mark(picture, rect, out);
    bool may = !(without & POISE_SCREEN_WITHOUT_REPEATS);
    if (may && rect->height - out->height > rect->height / ENOUGH) {
        form |= ROWS;
    } else {
        memset(out->rows, 1, rect->height);
        out->height = rect->height;
    }
    if (may && rect->width - out->width > rect->width / ENOUGH) {
        form |= COLUMNS;
    } else {
        memset(out->columns, 1, rect->width);
        out->width = rect->width;
    }
    for (uint32_t y = 0; y < rect->height; y++) {
        const uint32_t *row = codec_at(picture, rect->x, rect->y + y);
        if (!out->rows[y]) {
            continue;
        }
        if (!(form & COLUMNS)) {
            memcpy(matrix, row, rect->width * sizeof *row);
            matrix += rect->width;
            continue;
        }
        for (uint32_t x = 0; x < rect->width; x++) {
            *matrix = row[x];
            matrix += out->columns[x];
        }
    }
    return form;
}

static void put_bits(const uint8_t *flags, uint32_t count,
                     struct poise_buf *out)
{
    for (uint32_t i = 0; i < count; i += 8) {
        unsigned byte = 0;
        for (uint32_t k = 0; k < 8 && i + k < count; k++) {
            byte |= (unsigned)flags[i + k] << k;
        }
        poise_buf_putc(out, (char)byte);
    }
}

/* How many are set; the first one has to be. */
static int get_bits(struct poise_reader *in, uint8_t *flags, uint32_t count,
                    bool written, uint32_t *set)
{
    if (!written) {
        memset(flags, 1, count);
        *set = count;
        return 0;
    }
    if (poise_reader_left(in) < (count + 7) / 8 || !(in->pos[0] & 1)) {
        return bad("flags are damaged");
    }
    *set = 0;
    for (uint32_t i = 0; i < count; i++) {
        flags[i] = in->pos[i / 8] >> i % 8 & 1;
        *set += flags[i];
    }
    in->pos += (count + 7) / 8;
    return 0;
}

static void expand(const struct reduced *reduced, const uint32_t *matrix,
                   const struct poise_screen_rect *rect,
                   struct poise_screen_picture *picture)
{
    const uint32_t *next = matrix;
    for (uint32_t y = 0; y < rect->height; y++) {
        uint32_t *row = codec_at(picture, rect->x, rect->y + y);
        if (!reduced->rows[y]) {
            memcpy(row, row - picture->width, rect->width * sizeof *row);
            continue;
        }
        const uint32_t *from = next - 1;
        next += reduced->width;
        for (uint32_t x = 0; x < rect->width; x++) {
            from += reduced->columns[x];
            row[x] = *from;
        }
    }
}

/* ---- one plane for all --------------------------------------------------- */

/* Whether green alone says which colour it is, of enough to be a picture. */
static bool is_told_by_green(const struct lookup *lookup)
{
    enum { LEAST = 32 };
    bool seen[256] = {false};
    for (unsigned slot = 0; lookup->count >= LEAST && slot < CODEC_COLOUR_SLOTS;
         slot++) {
        unsigned green = lookup->colour[slot] >> 8 & 255;
        if (lookup->number[slot] >= 0 && seen[green]) {
            return false;
        }
        seen[green] |= lookup->number[slot] >= 0;
    }
    return lookup->count >= LEAST;
}

/* The numbers of the colours that there are. */
static void put_used(const struct lookup *lookup, struct poise_buf *out)
{
    poise_buf_varint(out, lookup->count);
    for (unsigned slot = 0; slot < CODEC_COLOUR_SLOTS; slot++) {
        if (lookup->number[slot] >= 0) {
            poise_buf_putc(out, (char)(lookup->number[slot] - 1));
        }
    }
}

/* The colour of each green; ~0: there is none. */
static int get_used(const struct codec_colours *colours,
                    struct poise_reader *in, uint32_t of_green[256])
{
    uint64_t count = poise_reader_varint(in);
    if (in->error || count > CODEC_COLOURS || poise_reader_left(in) < count) {
        return bad("colours are missing");
    }
    memset(of_green, 0xff, 256 * sizeof *of_green);
    for (; count > 0; count--) {
        uint32_t colour = colours->colour[*in->pos++];
        of_green[colour >> 8 & 255] = colour;
    }
    return 0;
}

static int paint_by_green(const uint32_t of_green[256], uint32_t *matrix,
                          size_t area)
{
    for (size_t i = 0; i < area; i++) {
        matrix[i] = of_green[matrix[i] >> 8 & 255];
        if (matrix[i] == UINT32_MAX) {
            return bad("a colour is missing");
        }
    }
    return 0;
}

/* ---- a rectangle --------------------------------------------------------- */

/* How pixels of few colours go. */
enum { AS_NUMBERS, AS_STRIPS, AS_GREEN, KINDS };

/* In a form without strips; the form. `lookup` NULL: planes. */
static int put_matrix(struct codec_pixels *pixels, const struct lookup *lookup,
                      int kind, const struct poise_screen_picture *picture,
                      const struct poise_screen_rect *rect,
                      struct poise_buf *out)
{
    struct reduced reduced = {.rows = pixels->flags,
                              .columns = pixels->flags + rect->height};
    int form = reduce(pixels->without, picture, rect, &reduced, pixels->matrix);
    if (form & ROWS) {
        put_bits(reduced.rows, rect->height, out);
    }
    if (form & COLUMNS) {
        put_bits(reduced.columns, rect->width, out);
    }
    if (!lookup) {
        return form | PLANES |
               PREDICT * codec_planes_put(pixels, all_planes, reduced.width,
                                          reduced.height, out);
    }
    if (kind == AS_GREEN) {
        put_used(lookup, out);
        return form | GREEN |
               PREDICT * codec_planes_put(pixels, green_plane, reduced.width,
                                          reduced.height, out);
    }
    size_t area = (size_t)reduced.width * reduced.height;
    uint8_t *to = (uint8_t *)poise_buf_reserve(out, area);
    if (to) {
        put_numbers(lookup, pixels->matrix, area, to);
        out->len += area;
    }
    return form;
}

/* By one of the kinds; the form. */
static int put_few(struct codec_pixels *pixels, const struct lookup *lookup,
                   int kind, const struct poise_screen_picture *picture,
                   const struct poise_screen_rect *rect, struct poise_buf *out)
{
    if (kind == AS_STRIPS) {
        put_strips(lookup, picture, rect, out);
        return STRIPS;
    }
    return put_matrix(pixels, lookup, kind, picture, rect, out);
}

size_t codec_pixels_try(struct codec_pixels *pixels,
                        const struct poise_buf *form)
{
    size_t most = ZSTD_compressBound(form->len);
    char *room = poise_buf_reserve(&pixels->packed, most);
    size_t len = room ? ZSTD_compressCCtx(pixels->zstd, room, most, form->data,
                                          form->len, 1)
                      : 0;
    return ZSTD_isError(len) ? form->len : len;
}

/* Whether it is worth a trial: those that are a large part of the message, and
 * some of the others, which else go as the last one that was tried. */
static bool is_tried(struct codec_pixels *pixels,
                     const struct poise_screen_rect *rect)
{
    enum { LARGE = 32, OTHERS = 8 }; /* one in so many */
    return codec_area(rect) * LARGE >= pixels->area ||
           pixels->rects++ % OTHERS == 0;
}

/* The kind that is least, judging by as many rows as fit into a trial. */
static int choose_kind(struct codec_pixels *pixels, const struct lookup *lookup,
                       const struct poise_screen_picture *picture,
                       const struct poise_screen_rect *rect)
{
    struct poise_screen_rect part = *rect;
    uint32_t rows = TRIAL_PIXELS / rect->width + 1;
    bool may[KINDS] = {true,
                       rect->width >= 2 && rect->height >= STRIP_LEAST &&
                           !(pixels->without & POISE_SCREEN_WITHOUT_STRIPS),
                       !(pixels->without & POISE_SCREEN_WITHOUT_PREDICTION) &&
                           is_told_by_green(lookup)};
    size_t least = SIZE_MAX;
    if (!may[AS_STRIPS] && !may[AS_GREEN]) {
        return AS_NUMBERS;
    }
    if (!is_tried(pixels, rect)) {
        return may[pixels->kind] ? pixels->kind : AS_NUMBERS;
    }
    if (part.height > rows) {
        part.y += (part.height - rows) / 2;
        part.height = rows;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        if (may[kind]) {
            poise_buf_reset(&pixels->trial);
            put_few(pixels, lookup, kind, picture, &part, &pixels->trial);
            size_t bytes = codec_pixels_try(pixels, &pixels->trial);
            pixels->kind = bytes < least ? kind : pixels->kind;
            least = bytes < least ? bytes : least;
        }
    }
    return pixels->kind;
}

/* Flags of rows and of columns, and two lines of a plane. */
static size_t flags_of(const struct poise_screen_rect *rect)
{
    return 3 * ((size_t)rect->width + 1) + rect->height;
}

int codec_pixels_put(struct codec_pixels *pixels,
                     const struct poise_screen_picture *picture,
                     const struct poise_screen_rect *rect, bool *passing,
                     struct poise_buf *out)
{
    struct lookup lookup;
    size_t at = out->len;
    if (!pixels->zstd) {
        pixels->zstd = ZSTD_createCCtx();
    }
    if (!pixels->zstd ||
        make_room(pixels, (size_t)codec_area(rect), flags_of(rect)) < 0) {
        return -ENOMEM;
    }
    bool few = gather(&lookup, picture, rect);
    int form;
    poise_buf_putc(out, 0);
    if (few) {
        give_numbers(&pixels->colours, &lookup, out);
    }
    if (few) {
        int kind = choose_kind(pixels, &lookup, picture, rect);
        form = put_few(pixels, &lookup, kind, picture, rect, out);
    } else {
        form = put_matrix(pixels, NULL, 0, picture, rect, out);
    }
    *passing = *passing && form & PLANES;
    if (out->error == 0) {
        out->data[at] = (char)(form | (*passing ? PASSING : 0));
    }
    return out->error;
}

static int get_colours(struct codec_colours *colours, struct poise_reader *in)
{
    enum { BYTES = 4 };
    uint64_t count = poise_reader_varint(in);
    if (in->error || count > CODEC_COLOURS ||
        poise_reader_left(in) < count * BYTES) {
        return bad("colours are missing");
    }
    for (; count > 0; count--, in->pos += BYTES) {
        colours->colour[in->pos[0]] =
            (uint32_t)in->pos[3] << 16 | (uint32_t)in->pos[2] << 8 | in->pos[1];
    }
    return 0;
}

static int get_matrix(struct codec_pixels *pixels, struct poise_reader *in,
                      int form, const struct poise_screen_rect *rect,
                      struct poise_screen_picture *picture)
{
    struct reduced reduced = {.rows = pixels->flags,
                              .columns = pixels->flags + rect->height};
    int code =
        get_bits(in, reduced.rows, rect->height, form & ROWS, &reduced.height);
    code = code == 0 ? get_bits(in, reduced.columns, rect->width,
                                form & COLUMNS, &reduced.width)
                     : code;
    if (code < 0) {
        return code;
    }
    size_t area = (size_t)reduced.width * reduced.height;
    int how = (form & PREDICT_MASK) / PREDICT;
    if ((form & GREEN) == GREEN) {
        uint32_t of_green[256];
        code = get_used(&pixels->colours, in, of_green);
        code = code == 0 ? codec_planes_get(pixels, in, how, green_plane,
                                            reduced.width, reduced.height)
                         : code;
        code =
            code == 0 ? paint_by_green(of_green, pixels->matrix, area) : code;
    } else if (form & PLANES) {
        code = codec_planes_get(pixels, in, how, all_planes, reduced.width,
                                reduced.height);
    } else if (poise_reader_left(in) < area) {
        code = bad("pixels are missing");
    } else {
        for (size_t i = 0; i < area; i++) {
            pixels->matrix[i] = pixels->colours.colour[*in->pos++];
        }
    }
    if (code == 0) {
        expand(&reduced, pixels->matrix, rect, picture);
    }
    return code;
}

int codec_pixels_get(struct codec_pixels *pixels, struct poise_reader *in,
                     const struct poise_screen_rect *rect,
                     struct poise_screen_picture *picture, bool *passing)
{
    if (poise_reader_left(in) == 0) {
        return bad("pixels are missing");
    }
    int form = *in->pos++;
    *passing = form & PASSING;
    int code = make_room(pixels, (size_t)codec_area(rect), flags_of(rect));
    if ((form & PREDICT_MASK) / PREDICT >= CODEC_PREDICTORS) {
        return bad("pixels have no such form");
    }
    if (code == 0 && (form & GREEN) != PLANES) {
        code = get_colours(&pixels->colours, in);
    }
    if (code < 0) {
        return code;
    }
    return (form & GREEN) == STRIPS
               ? get_strips(&pixels->colours, in, rect, picture)
               : get_matrix(pixels, in, form, rect, picture);
}
