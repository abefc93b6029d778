/* Plates of poise solve: images and matrices, read and written. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES 65536
#define CELLS_MOST (INT64_C(1) << 36)

/** What is left of a file that is in memory. */
struct text {
    const char *path, *at, *end;
};

static int wrong(const struct text *text, const char *why)
{
    return poise_error_set(EINVAL, "read", text->path, "%s", why);
}

static int plate_make(struct cli_plate *plate, const struct text *text)
{
    int64_t cells;
    if (plate->rows < 1 || plate->columns < 1 ||
        __builtin_mul_overflow(plate->rows, plate->columns, &cells) ||
        cells > CELLS_MOST) {
        return wrong(text, "its size makes no sense");
    }
    plate->cells = poise_alloc((size_t)cells, sizeof *plate->cells);
    return plate->cells ? 0 : -ENOMEM;
}

/* ---- images ------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* A number of the header, or of a plain image; comments run to the end of the
 * line. */
static int image_number(struct text *text, int64_t most, int64_t *out)
{
    while (text->at < text->end && (is_blank(*text->at) || *text->at == '#')) {
        if (*text->at == '#') {
            while (text->at < text->end && *text->at != '\n') {
                text->at++;
            }
        } else {
            text->at++;
        }
    }
    if (text->at >= text->end || *text->at < '0' || *text->at > '9') {
        return wrong(text, "it ends early, or a number of it is none");
    }
    for (*out = 0; *text->at >= '0' && *text->at <= '9'; text->at++) {
        *out = 10 * *out + (*text->at - '0');
        if (*out > most) {
            return wrong(text, "a number of it is too large");
        }
    }
    return 0;
}

/* A sample: a number, or one or two bytes. */
static int image_sample(struct text *text, bool plain, int64_t white,
                        int64_t *out)
{
    int bytes = white > 255 ? 2 : 1;
    if (plain) {
        return image_number(text, white, out);
    }
    if (text->end - text->at < bytes) {
        return wrong(text, "it ends early");
    }
    *out = (unsigned char)*text->at++;
    if (bytes == 2) {
        *out = 256 * *out + (unsigned char)*text->at++;
    }
    return *out > white ? wrong(text, "a sample is whiter than white") : 0;
}

static int image_cells(struct text *text, bool plain, bool colours,
                       int64_t white, struct cli_plate *plate)
{
    /* Luminance by ITU-R BT.601. */
    static const double parts[3] = {0.299, 0.587, 0.114};
    int64_t sample;
    for (int64_t c = 0; c < plate->rows * plate->columns; c++) {
        for (int k = 0; k < (colours ? 3 : 1); k++) {
            int code = image_sample(text, plain, white, &sample);
            if (code < 0) {
                return code;
            }
            plate->cells[c] += (colours ? parts[k] : 1) * (double)sample;
        }
    }
    return 0;
}

static int image_read(struct text *text, struct cli_plate *plate)
{
    char kind = text->at[1];
    bool plain = kind <= '3';
    int64_t white;
    text->at += 2;
    int code = image_number(text, INT32_MAX, &plate->columns);
    if (code == 0) {
        code = image_number(text, INT32_MAX, &plate->rows);
    }
    if (code == 0) {
        code = image_number(text, 65535, &white);
    }
    if (code == 0 && white == 0) {
        code = wrong(text, "its greatest value is 0");
    }
    if (code < 0) {
        return code;
    }
    text->at += !plain; /* exactly one blank ends the header */
    plate->white = (double)white;
    code = plate_make(plate, text);
    return code < 0 ? code
                    : image_cells(text, plain, kind == '3' || kind == '6',
                                  white, plate);
}

/* ---- matrices ----------------------------------------------------------- */

/* Numbers of one line; the first line says how many there are in each. */
static int matrix_line(struct text *text, struct poise_buf *cells,
                       int64_t *count)
{
    *count = 0;
    while (text->at < text->end && *text->at != '\n') {
        char *end;
        if (is_blank(*text->at) || *text->at == ',' || *text->at == ';') {
            text->at++;
            continue;
        }
        double value = strtod(text->at, &end);
        if (end == text->at || !isfinite(value)) {
            return wrong(text, "neither an image (PGM, PPM) nor a matrix of "
                               "finite numbers");
        }
        text->at = end;
        ++*count;
        if (poise_buf_append(cells, &value, sizeof value) < 0) {
            return -ENOMEM;
        }
    }
    text->at++;
    return 0;
}

static int matrix_read(struct text *text, struct cli_plate *plate)
{
    struct poise_buf cells = {0};
    int code = 0;
    while (code == 0 && text->at < text->end) {
        int64_t count;
        code = matrix_line(text, &cells, &count);
        if (code == 0 && count > 0) {
            plate->columns = plate->rows == 0 ? count : plate->columns;
            plate->rows++;
            if (count != plate->columns) {
                code = wrong(text, "its rows are of different lengths");
            }
        }
    }
    if (code == 0) {
        code = plate_make(plate, text);
    }
    if (code == 0) {
        memcpy(plate->cells, cells.data, cells.len);
    }
    poise_buf_free(&cells);
    return code;
}

int cli_plate_read(const char *path, struct cli_plate *out)
{
    struct poise_buf whole = {0};
    int code = cli_text_read(path, &whole);
    *out = (struct cli_plate){0};
    if (code == 0) {
        struct text text = {path, whole.data, whole.data + whole.len - 1};
        const char *p = text.at;
        bool image = whole.len > 3 && p[0] == 'P' && strchr("2356", p[1]) &&
                     (is_blank(p[2]) || p[2] == '#');
        code = image ? image_read(&text, out) : matrix_read(&text, out);
    }
    poise_buf_free(&whole);
    if (code < 0) {
        cli_plate_free(out);
        return code;
    }
    out->low = out->high = out->cells[0];
    for (int64_t c = 0; c < out->rows * out->columns; c++) {
        out->low = out->cells[c] < out->low ? out->cells[c] : out->low;
        out->high = out->cells[c] > out->high ? out->cells[c] : out->high;
    }
    return 0;
}

void cli_plate_free(struct cli_plate *plate)
{
    free(plate->cells);
    plate->cells = NULL;
}

/* ---- writing ------------------------------------------------------------ */

static bool ends_in(const char *path, const char *end)
{
    size_t len = strlen(path), most = strlen(end);
    return len > most && strcmp(path + len - most, end) == 0;
}

static unsigned level(double share, unsigned most)
{
    double value = share * most + 0.5;
    return value < 0 ? 0 : value > most ? most : (unsigned)value;
}

static void grey_write(const struct cli_plate *plate, struct poise_buf *out)
{
    double low = plate->white > 0 ? 0 : plate->low;
    double span = plate->white > 0 ? plate->white : plate->high - plate->low;
    unsigned white = plate->white > 0 ? (unsigned)plate->white : 65535;
    poise_buf_printf(out, "P5\n%lld %lld\n%u\n", (long long)plate->columns,
                     (long long)plate->rows, white);
    for (int64_t c = 0; c < plate->rows * plate->columns; c++) {
        double share = span > 0 ? (plate->cells[c] - low) / span : 0;
        unsigned value = level(share, white);
        if (white > 255) {
            poise_buf_putc(out, (char)(value >> 8));
        }
        poise_buf_putc(out, (char)(value & 255));
    }
}

static void colours_write(const struct cli_plate *plate, struct poise_buf *out)
{
    /* Blue, white, red: even steps to the eye, and safe for the colour-blind.
     */
    static const double stops[5][3] = {{0.02, 0.19, 0.38},
                                       {0.26, 0.58, 0.76},
                                       {0.97, 0.97, 0.97},
                                       {0.84, 0.38, 0.30},
                                       {0.40, 0.00, 0.12}};
    double span = plate->high - plate->low;
    poise_buf_printf(out, "P6\n%lld %lld\n255\n", (long long)plate->columns,
                     (long long)plate->rows);
    for (int64_t c = 0; c < plate->rows * plate->columns; c++) {
        double share = span > 0 ? (plate->cells[c] - plate->low) / span : 0;
        share = share < 0 ? 0 : share > 1 ? 1 : share;
        int stop = share < 1 ? (int)(share * 4) : 3;
        double rest = share * 4 - stop;
        for (int k = 0; k < 3; k++) {
            double value =
                stops[stop][k] + rest * (stops[stop + 1][k] - stops[stop][k]);
            poise_buf_putc(out, (char)level(value, 255));
        }
    }
}

static void matrix_write(const struct cli_plate *plate, struct poise_buf *out)
{
    for (int64_t row = 0; row < plate->rows; row++) {
        for (int64_t c = 0; c < plate->columns; c++) {
            poise_buf_printf(out, c > 0 ? " %.17g" : "%.17g",
                             plate->cells[row * plate->columns + c]);
        }
        poise_buf_putc(out, '\n');
    }
}

int cli_plate_write(const struct cli_plate *plate, const char *path)
{
    struct poise_buf out = {0};
    if (ends_in(path, ".pgm")) {
        grey_write(plate, &out);
    } else if (ends_in(path, ".ppm")) {
        colours_write(plate, &out);
    } else {
        matrix_write(plate, &out);
    }
    int code = out.error ? out.error : poise_file_save(path, &out);
    poise_buf_free(&out);
    return code;
}
