/*
 * Items with equal keys become one: the first, with their number before it, and
 * with fields that are the sums of theirs. Decimal numbers are added as they
 * are written: nothing is rounded.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

/** Digits behind the point that are kept apart; more are an error. */
enum { MOST_SCALE = 18 };

static int refuse_range(const char *why)
{
    return poise_error_set(ERANGE, "add up", "a field", "%s", why);
}

/* ---- decimal numbers ---------------------------------------------------- */

static bool add_digit(sort_wide *units, int digit)
{
    return !__builtin_mul_overflow(*units, (sort_wide)10, units) &&
           !__builtin_add_overflow(*units, (sort_wide)digit, units);
}

static bool rescale(struct sort_sum *sum, unsigned scale)
{
    for (; sum->scale < scale; sum->scale++) {
        if (!add_digit(&sum->units, 0)) {
            return false;
        }
    }
    return true;
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

/* As for -n: blanks, a sign, digits, a point, digits; no digits are zero. */
static int read_decimal(const unsigned char *at, const unsigned char *end,
                        struct sort_sum *out)
{
    bool negative, fits = true;

    *out = (struct sort_sum){0};
    while (at < end && (*at == ' ' || *at == '\t')) {
        at++;
    }
    negative = at < end && *at == '-';
    at += negative;
    for (; at < end && is_digit(*at) && fits; at++) {
        fits = add_digit(&out->units, *at - '0');
    }
    if (at < end && *at == '.') {
        for (at++; at < end && is_digit(*at) && fits; at++) {
            fits =
                ++out->scale <= MOST_SCALE && add_digit(&out->units, *at - '0');
        }
    }
    out->units = negative ? -out->units : out->units;
    return fits ? 0
                : refuse_range("a number has more than 38 digits, or more than "
                               "18 behind the point");
}

static void put_decimal(const struct sort_sum *sum, struct poise_buf *out)
{
    char digits[64], *at = digits + sizeof digits;
    sort_wide_unsigned left = sum->units < 0 ? -(sort_wide_unsigned)sum->units
                                             : (sort_wide_unsigned)sum->units;

    for (unsigned i = 0; left > 0 || i <= sum->scale; i++) {
        if (i == sum->scale && i > 0) {
            *--at = '.';
        }
        *--at = (char)('0' + (int)(left % 10));
        left /= 10;
    }
    if (sum->units < 0) {
        *--at = '-';
    }
    poise_buf_append(out, at, (size_t)(digits + sizeof digits - at));
}

/* ---- numbers of records ------------------------------------------------- */

static void read_number(const struct poise_sort_part *part,
                        const unsigned char *record, struct sort_sum *out)
{
    const unsigned char *at = record + part->offset;
    uint64_t large = 0;
    uint32_t small = 0;

    *out = (struct sort_sum){0};
    memcpy(part->bytes == 4 ? (void *)&small : &large, at, part->bytes);
    if (part->kind == POISE_SORT_PART_FLOATING && part->bytes == 4) {
        float x;

        memcpy(&x, at, sizeof x);
        out->floating = (double)x;
    } else if (part->kind == POISE_SORT_PART_FLOATING) {
        memcpy(&out->floating, at, sizeof out->floating);
    } else if (part->kind == POISE_SORT_PART_SIGNED) {
        out->units = part->bytes == 4 ? (int32_t)small : (int64_t)large;
    } else {
        out->units = part->bytes == 4 ? small : large;
    }
}

static int put_number(const struct poise_sort_part *part,
                      const struct sort_sum *sum, char *record)
{
    char *to = record + part->offset;
    bool is_signed = part->kind == POISE_SORT_PART_SIGNED;
    unsigned bits = 8 * part->bytes - is_signed;
    sort_wide most = ((sort_wide)1 << bits) - 1,
              least = is_signed ? -most - 1 : 0;
    uint64_t large = (uint64_t)sum->units;
    uint32_t small = (uint32_t)large;
    float x = (float)sum->floating;

    if (part->kind == POISE_SORT_PART_FLOATING) {
        memcpy(to, part->bytes == 4 ? (const void *)&x : &sum->floating,
               part->bytes);
        return 0;
    }
    if (sum->units < least || sum->units > most) {
        return refuse_range("the sum does not fit it");
    }
    memcpy(to, part->bytes == 4 ? (const void *)&small : &large, part->bytes);
    return 0;
}

/* ---- totals ------------------------------------------------------------- */

static int add(struct sort_sum *sum, const struct sort_sum *more)
{
    struct sort_sum other = *more;

    sum->floating += other.floating;
    if (!rescale(sum, other.scale) || !rescale(&other, sum->scale) ||
        __builtin_add_overflow(sum->units, other.units, &sum->units)) {
        return refuse_range("the sum has more than 38 digits");
    }
    return 0;
}

int sort_total_add(const struct sort_run *run, struct sort_total *total,
                   const unsigned char *item, size_t len)
{
    const struct poise_sort_keys *sums = run->options->sums;
    size_t count = poise_sort_keys_count(sums);
    int code = 0;

    total->items++;
    for (size_t i = 0; i < count && code == 0; i++) {
        const struct poise_sort_part *part = poise_sort_keys_part(sums, i);
        struct sort_sum one;

        if (part) {
            read_number(part, item, &one);
        } else {
            size_t from, to;

            poise_sort_keys_span(sums, i, item, len, &from, &to);
            code = read_decimal(item + from, item + to, &one);
        }
        code = code < 0 ? code : add(&total->sums[i], &one);
    }
    return code;
}

int sort_total_merge(const struct sort_run *run, struct sort_total *total,
                     const struct sort_total *other)
{
    size_t count = poise_sort_keys_count(run->options->sums);
    int code = 0;

    total->items += other->items;
    for (size_t i = 0; i < count && code == 0; i++) {
        code = add(&total->sums[i], &other->sums[i]);
    }
    return code;
}

/* A line with its fields replaced, in the order in which they stand. */
static void put_fields(const struct sort_run *run,
                       const struct sort_total *total,
                       const unsigned char *line, size_t len,
                       struct poise_buf *out)
{
    const struct poise_sort_keys *sums = run->options->sums;
    size_t count = poise_sort_keys_count(sums), done = 0;

    for (;;) {
        size_t best = count, best_from = len, best_to = len;

        for (size_t i = 0; i < count; i++) {
            size_t from, to;

            poise_sort_keys_span(sums, i, line, len, &from, &to);
            if (from < to && from >= done && from < best_from) {
                best = i;
                best_from = from;
                best_to = to;
            }
        }
        poise_buf_append(out, line + done, best_from - done);
        if (best == count) {
            return;
        }
        put_decimal(&total->sums[best], out);
        done = best_to;
    }
}

int sort_total_put(const struct sort_run *run, const struct sort_total *total,
                   const unsigned char *item, size_t len, struct poise_buf *out)
{
    const struct poise_sort_keys *sums = run->options->sums;
    size_t count = poise_sort_keys_count(sums), begin = out->len;
    int code = 0;

    if (run->shape == SORT_TEXT) {
        if (run->options->count) {
            poise_buf_printf(out, "%7llu ", (unsigned long long)total->items);
        }
        /* One alone stays as it is written. */
        if (total->items > 1) {
            put_fields(run, total, item, len, out);
        } else {
            poise_buf_append(out, item, len);
        }
        return poise_buf_putc(out, sort_ending(&run->type));
    }
    poise_buf_append(out, item, len);
    for (size_t i = 0; i < count && code == 0 && !out->error; i++) {
        code = put_number(poise_sort_keys_part(sums, i), &total->sums[i],
                          out->data + begin);
    }
    return code < 0 ? code : out->error;
}
