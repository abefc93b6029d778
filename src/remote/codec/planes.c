/*
 * Pixels as planes of bytes, as they are or as what they differ from a
 * prediction by their neighbours: photographs, and all that has many colours.
 */
#include "internal.h"

#include <errno.h>

enum { SAMPLE = 4096 /* pixels, to choose a predictor by */ };
enum predictor { AS_IT_IS, LEFT, ABOVE, MEDIAN, AVERAGE };
_Static_assert(AVERAGE + 1 == CODEC_PREDICTORS, "all have a number");

/* A byte of a plane from its neighbours; outside of the matrix there are
 * zeros. (LOCO-I's median edge detector.) */
static inline uint8_t median(uint8_t left, uint8_t above, uint8_t corner)
{
    uint8_t low = left < above ? left : above;
    uint8_t high = left < above ? above : left;
    return corner >= high  ? low
           : corner <= low ? high
                           : (uint8_t)(left + above - corner);
}
static inline uint8_t average(uint8_t left, uint8_t above)
{
    return (uint8_t)((left + above) / 2);
}
static inline uint8_t predict(enum predictor how, uint8_t left, uint8_t above,
                              uint8_t corner)
{
    return how == AS_IT_IS  ? 0
           : how == LEFT    ? left
           : how == ABOVE   ? above
           : how == AVERAGE ? average(left, above)
                            : median(left, above, corner);
}

/* Green as it is, blue and red as differences from it where that is asked for,
 * as bytes of one number. */
static inline uint32_t apart(uint32_t pixel)
{
    uint32_t green = pixel >> 8 & 255;
    return (((pixel >> 16) - green) & 255) << 16 | green << 8 |
           ((pixel - green) & 255);
}
static inline uint32_t together(uint32_t pixel)
{
    uint32_t green = pixel >> 8 & 255;
    return (((pixel >> 16) + green) & 255) << 16 | green << 8 |
           ((pixel + green) & 255);
}

static inline uint8_t residual(const uint32_t *matrix, uint32_t width,
                               uint32_t x, uint32_t y, unsigned shift,
                               enum predictor how)
{
    const uint32_t *at = matrix + (size_t)y * width + x;
    uint8_t left = x > 0 ? (uint8_t)(at[-1] >> shift) : 0;
    uint8_t above = y > 0 ? (uint8_t)(at[-(ptrdiff_t)width] >> shift) : 0;
    uint8_t corner =
        x > 0 && y > 0 ? (uint8_t)(at[-(ptrdiff_t)width - 1] >> shift) : 0;
    return (uint8_t)((uint8_t)(*at >> shift) -
                     predict(how, left, above, corner));
}

/* How many different bytes a sample leaves: bits of entropy, nearly. */
static double cost(const unsigned *counts, unsigned total)
{
    double bits = 0;
    for (unsigned i = 0; i < 256; i++) {
        if (counts[i] > 0) {
            unsigned n = counts[i];
            /* log2(total / n), by its leading bits and a line between. */
            unsigned a = 31 - (unsigned)__builtin_clz(total);
            unsigned b = 31 - (unsigned)__builtin_clz(n);
            bits += n * ((double)a + (double)total / (1u << a) - (double)b -
                         (double)n / (1u << b));
        }
    }
    return bits;
}

static enum predictor choose_predictor(const uint32_t *matrix, uint32_t width,
                                       uint32_t height,
                                       struct codec_planes planes)
{
    enum predictor best = AS_IT_IS;
    double least = 0;
    uint32_t step = 1 + (uint32_t)((uint64_t)width * height / SAMPLE);
    for (int how = 0; how < CODEC_PREDICTORS; how++) {
        unsigned counts[3][256] = {{0}}, total = 0;
        for (uint64_t i = 0; i < (uint64_t)width * height; i += step) {
            uint32_t x = (uint32_t)(i % width), y = (uint32_t)(i / width);
            for (unsigned plane = planes.first; plane < planes.end; plane++) {
                counts[plane][residual(matrix, width, x, y, 8 * plane,
                                       (enum predictor)how)]++;
            }
            total++;
        }
        double bits = 0;
        for (unsigned plane = planes.first; plane < planes.end; plane++) {
            bits += cost(counts[plane], total);
        }
        if (how == AS_IT_IS || bits < least * 0.97) {
            least = bits;
            best = (enum predictor)how;
        }
    }
    return best;
}

/* A row less its prediction. Both rows begin behind a zero. */
static void predict_row(enum predictor how, const uint8_t *row,
                        const uint8_t *above, uint32_t width, uint8_t *to)
{
    switch (how) {
    case LEFT:
        for (uint32_t x = 0; x < width; x++) {
            to[x] = (uint8_t)(row[x] - row[(ptrdiff_t)x - 1]);
        }
        return;
    case ABOVE:
        for (uint32_t x = 0; x < width; x++) {
            to[x] = (uint8_t)(row[x] - above[x]);
        }
        return;
    case AVERAGE:
        for (uint32_t x = 0; x < width; x++) {
            to[x] =
                (uint8_t)(row[x] - average(row[(ptrdiff_t)x - 1], above[x]));
        }
        return;
    case MEDIAN:
        for (uint32_t x = 0; x < width; x++) {
            to[x] = (uint8_t)(row[x] - median(row[(ptrdiff_t)x - 1], above[x],
                                              above[(ptrdiff_t)x - 1]));
        }
        return;
    default:
        memcpy(to, row, width);
    }
}

/* The other way round. */
static void restore_row(enum predictor how, const uint8_t *from,
                        const uint8_t *above, uint32_t width, uint8_t *row)
{
    for (uint32_t x = 0; x < width; x++) {
        row[x] =
            (uint8_t)(from[x] + predict(how, row[(ptrdiff_t)x - 1], above[x],
                                        above[(ptrdiff_t)x - 1]));
    }
}

/* Two rows of a plane, a zero before each. */
struct lines {
    uint8_t *row, *above;
};
static struct lines clear_lines(struct codec_pixels *pixels, uint32_t width)
{
    uint8_t *room = pixels->flags + pixels->flags_room - 2 * (size_t)width - 2;
    memset(room, 0, 2 * (size_t)width + 2);
    return (struct lines){room + 1, room + width + 2};
}
static void swap_lines(struct lines *lines)
{
    uint8_t *row = lines->row;
    lines->row = lines->above;
    lines->above = row;
}

/* Planes of rows of a matrix, appended; green is taken from the others where
 * they are predicted. */
static void put_rows(struct codec_pixels *pixels, struct codec_planes planes,
                     enum predictor how, const uint32_t *matrix, uint32_t width,
                     uint32_t height, struct poise_buf *out)
{
    size_t bytes = (size_t)width * height * (planes.end - planes.first);
    bool is_apart = how != AS_IT_IS && planes.first == 0;
    uint8_t *to = (uint8_t *)poise_buf_reserve(out, bytes);
    for (unsigned plane = planes.first; to && plane < planes.end; plane++) {
        struct lines lines = clear_lines(pixels, width);
        for (uint32_t y = 0; y < height; y++, to += width) {
            const uint32_t *from = matrix + (size_t)y * width;
            for (uint32_t x = 0; x < width; x++) {
                uint32_t pixel = is_apart ? apart(from[x]) : from[x];
                lines.row[x] = (uint8_t)(pixel >> 8 * plane);
            }
            predict_row(how, lines.row, lines.above, width, to);
            swap_lines(&lines);
        }
    }
    out->len += to ? bytes : 0;
}

/* The predictor, or none if so many pixels repeat that they are less without,
 * as far as some rows in the middle tell. */
static enum predictor try_predictor(struct codec_pixels *pixels,
                                    enum predictor how, uint32_t width,
                                    uint32_t height)
{
    enum { PIXELS = 1 << 13 };
    uint32_t rows = PIXELS / width + 1;
    rows = rows < height ? rows : height;
    const uint32_t *matrix =
        pixels->matrix + (size_t)(height - rows) / 2 * width;
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        poise_buf_reset(&pixels->trial);
        put_rows(pixels, (struct codec_planes){0, 3}, i ? how : AS_IT_IS,
                 matrix, width, rows, &pixels->trial);
        bytes[i] = codec_pixels_try(pixels, &pixels->trial);
    }
    return bytes[1] < bytes[0] ? how : AS_IT_IS;
}

int codec_planes_put(struct codec_pixels *pixels, struct codec_planes planes,
                     uint32_t width, uint32_t height, struct poise_buf *out)
{
    enum predictor how =
        pixels->without & POISE_SCREEN_WITHOUT_PREDICTION
            ? AS_IT_IS
            : choose_predictor(pixels->matrix, width, height, planes);
    if (how != AS_IT_IS && planes.first == 0) {
        how = try_predictor(pixels, how, width, height);
    }
    put_rows(pixels, planes, how, pixels->matrix, width, height, out);
    return (int)how;
}

int codec_planes_get(struct codec_pixels *pixels, struct poise_reader *in,
                     int number, struct codec_planes planes, uint32_t width,
                     uint32_t height)
{
    size_t area = (size_t)width * height;
    uint32_t *matrix = pixels->matrix;
    enum predictor how = (enum predictor)number;
    if (poise_reader_left(in) < area * (planes.end - planes.first)) {
        return poise_error_set(EBADMSG, "understand a screen's message", NULL,
                               "pixels are missing");
    }
    memset(matrix, 0, area * sizeof *matrix);
    for (unsigned plane = planes.first; plane < planes.end; plane++) {
        struct lines lines = clear_lines(pixels, width);
        for (uint32_t y = 0; y < height; y++, in->pos += width) {
            uint32_t *to = matrix + (size_t)y * width;
            restore_row(how, in->pos, lines.above, width, lines.row);
            for (uint32_t x = 0; x < width; x++) {
                to[x] |= (uint32_t)lines.row[x] << 8 * plane;
            }
            swap_lines(&lines);
        }
    }
    for (size_t i = 0; how != AS_IT_IS && planes.first == 0 && i < area; i++) {
        matrix[i] = together(matrix[i]);
    }
    return 0;
}
