/*
 * What is new in an array of floats: each element is predicted from those
 * before it along some of its dimensions, and its difference from the
 * prediction is written in Rice's code, in blocks with a parameter each.
 *
 * Elements are taken as integers in the order of the floats that they are, and
 * all arithmetic is that of integers modulo 2^32 or 2^64: exact on every
 * machine, whatever the bits stand for.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

enum {
    BLOCK = 32, /* elements with one parameter */
    PARAMETER_BITS = 6,
    UNARY_MOST = 24, /* longer ones are written as they are */
    ORDER_MOST = 5,
    TERMS_MOST = 1 << ORDER_MOST,
    SAMPLED = 8, /* one block in so many says which mode is best */
    LEAST = 256, /* bytes that are worth it */
    HEAD = 8,    /* what a message has beside them, about */
};

/* Foretold is the sum of weight times the element so many before. */
struct term {
    uint64_t back;
    int64_t weight;
};
struct terms {
    size_t count;
    struct term each[TERMS_MOST];
};

/* 1 - (1 - B^s1) (1 - B^s2) ..., where B is one element back. */
static void make_terms(const struct wire_grid *grid, unsigned mode,
                       struct terms *out)
{
    size_t count = 1;

    out->each[0] = (struct term){0, -1};
    for (size_t i = 0; i < WIRE_STRIDES; i++) {
        for (unsigned n = mode >> 2 * i & 3; n > 0; n--) {
            for (size_t k = 0; k < count; k++) {
                out->each[count + k] = (struct term){
                    out->each[k].back + grid->strides[i], -out->each[k].weight};
            }
            count *= 2;
        }
    }
    out->count = count - 1;
    memmove(out->each, out->each + 1, out->count * sizeof *out->each);
}

bool wire_residual_is_mode(const struct wire_grid *grid, unsigned mode)
{
    unsigned order = 0;

    for (size_t i = 0; i < WIRE_STRIDES; i++) {
        unsigned n = mode >> 2 * i & 3;
        order += n;
        if (n > 2 || (n > 0 && grid->strides[i] == 0)) {
            return false;
        }
    }
    return order <= ORDER_MOST && mode >> 2 * WIRE_STRIDES == 0;
}

/* The integer for the bits of a float, and back. */
static uint64_t ordered(const unsigned char *at, uint32_t element)
{
    if (element == 8) {
        uint64_t x = poise_get_u64(at);
        return x ^ (0 - (x >> 63)) >> 1;
    }
    uint32_t x = poise_get_u32(at);
    return x ^ (0 - (x >> 31)) >> 1;
}

static void put_ordered(uint64_t value, uint32_t element, unsigned char *at)
{
    if (element == 8) {
        value ^= (0 - (value >> 63)) >> 1;
    } else {
        uint32_t x = (uint32_t)value;
        value = x ^ (0 - (x >> 31)) >> 1;
    }
    for (uint32_t i = 0; i < element; i++) {
        at[i] = (unsigned char)(value >> 8 * i);
    }
}

/* `before` bytes lie in front of `at`. */
static uint64_t foretell(const struct terms *terms, const unsigned char *at,
                         size_t before, uint32_t element)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < terms->count; i++) {
        uint64_t back = terms->each[i].back * element;
        if (back <= before) {
            sum +=
                (uint64_t)terms->each[i].weight * ordered(at - back, element);
        }
    }
    return sum;
}

/* ---- bits --------------------------------------------------------------- */

struct bits {
    struct poise_buf *out;
    uint64_t held;
    unsigned count;
};

static void put_bits(struct bits *bits, uint64_t value, unsigned count)
{
    while (count > 0) {
        unsigned n = count < 32 ? count : 32;
        bits->held |= (value & ((UINT64_C(1) << n) - 1)) << bits->count;
        bits->count += n;
        value = n < 64 ? value >> n : 0;
        count -= n;
        for (; bits->count >= 8; bits->count -= 8, bits->held >>= 8) {
            poise_buf_putc(bits->out, (char)(bits->held & 255));
        }
    }
}

struct unbits {
    const unsigned char *at, *end;
    uint64_t held;
    unsigned count;
    bool is_short;
};

static uint64_t get_bits(struct unbits *bits, unsigned count)
{
    uint64_t value = 0;

    for (unsigned done = 0; done < count;) {
        unsigned n = count - done < 32 ? count - done : 32;
        while (bits->count < n) {
            if (bits->at == bits->end) {
                bits->is_short = true;
                return 0;
            }
            bits->held |= (uint64_t)*bits->at++ << bits->count;
            bits->count += 8;
        }
        value |= (bits->held & ((UINT64_C(1) << n) - 1)) << done;
        bits->held >>= n;
        bits->count -= n;
        done += n;
    }
    return value;
}

/* ---- residuals ---------------------------------------------------------- */

static uint64_t zigzag_of(uint64_t difference, uint32_t element)
{
    if (element == 4) {
        difference = (uint64_t)(int64_t)(int32_t)(uint32_t)difference;
    }
    return difference << 1 ^ (0 - (difference >> 63));
}

/* The parameter that takes the fewest bits, which go to *bits: it is near the
 * logarithm of the mean. */
static unsigned parameter_of(const uint64_t *values, size_t count,
                             unsigned width, uint64_t *bits)
{
    uint64_t mean = 0;
    unsigned near, best = 0;

    for (size_t i = 0; i < count; i++) {
        mean += values[i] / count;
    }
    near = mean ? 63 - (unsigned)__builtin_clzll(mean) : 0;
    *bits = UINT64_MAX;
    for (unsigned k = near > 2 ? near - 2 : 0; k <= near + 1 && k < width;
         k++) {
        uint64_t sum = 0;
        for (size_t i = 0; i < count; i++) {
            uint64_t unary = values[i] >> k;
            sum += unary < UNARY_MOST ? unary + 1 + k : UNARY_MOST + width;
        }
        if (sum < *bits) {
            *bits = sum;
            best = k;
        }
    }
    return best;
}

static void put_block(struct bits *bits, const uint64_t *values, size_t count,
                      uint32_t element)
{
    unsigned width = 8 * element;
    uint64_t size;
    unsigned k = parameter_of(values, count, width, &size);

    put_bits(bits, k, PARAMETER_BITS);
    for (size_t i = 0; i < count; i++) {
        uint64_t unary = values[i] >> k;
        if (unary < UNARY_MOST) {
            put_bits(bits, (UINT64_C(1) << unary) - 1, (unsigned)unary + 1);
            put_bits(bits, values[i], k);
        } else {
            put_bits(bits, (UINT64_C(1) << UNARY_MOST) - 1, UNARY_MOST);
            put_bits(bits, values[i], width);
        }
    }
}

/* About so many bits would a mode take. */
static uint64_t cost_of(const struct wire_grid *grid, unsigned mode,
                        const unsigned char *data, size_t count, size_t before)
{
    struct terms terms;
    uint64_t values[BLOCK], cost = 0, bits;
    uint32_t element = grid->element;

    make_terms(grid, mode, &terms);
    for (size_t i = 0; i + BLOCK <= count; i += SAMPLED * BLOCK) {
        for (size_t j = 0; j < BLOCK; j++) {
            size_t at = (i + j) * element;
            values[j] =
                zigzag_of(ordered(data + at, element) -
                              foretell(&terms, data + at, before + at, element),
                          element);
        }
        parameter_of(values, BLOCK, 8 * element, &bits);
        cost += bits + PARAMETER_BITS;
    }
    return cost;
}

unsigned wire_residual_best(const struct wire_grid *grid,
                            const unsigned char *data, size_t len,
                            size_t before)
{
    /* Differences along the nearest, the second and the third dimension. */
    static const unsigned char modes[] = {
        1,
        2,
        1 << 2,
        1 << 2 | 1,
        1 << 2 | 2,
        2 << 2 | 2,
        1 << 4,
        1 << 4 | 1,
        1 << 4 | 1 << 2,
        1 << 4 | 1 << 2 | 1,
        1 << 4 | 2 << 2 | 2,
        1 << 6,
    };
    uint64_t least = UINT64_MAX;
    unsigned best = 0;

    for (size_t i = 0; i < sizeof modes; i++) {
        if (wire_residual_is_mode(grid, modes[i])) {
            uint64_t cost =
                cost_of(grid, modes[i], data, len / grid->element, before);
            if (cost < least) {
                least = cost;
                best = modes[i];
            }
        }
    }
    return best;
}

void wire_grid_of(const struct poise_dedup_cut_options *array,
                  struct wire_grid *out)
{
    struct wire_grid grid = {.element = array ? array->element : 0};
    uint64_t stride = 1;
    size_t count = 0;

    for (size_t i = POISE_DEDUP_DIMENSIONS; array && i-- > 0;) {
        if (array->shape[i] > 1 && count < WIRE_STRIDES) {
            grid.strides[count++] = stride;
            stride *= array->shape[i];
        }
    }
    if (count < WIRE_STRIDES) {
        /* From step to step. */
        grid.strides[count] = stride;
    }
    *out = grid;
}

int wire_residual_make(const struct wire_grid *grid, unsigned mode,
                       const unsigned char *data, size_t len, size_t before,
                       struct poise_buf *out)
{
    struct terms terms;
    struct bits bits = {.out = out};
    uint64_t values[BLOCK];
    uint32_t element = grid->element;
    size_t count = len / element, held = 0;

    make_terms(grid, mode, &terms);
    for (size_t i = 0; i < count; i++) {
        const unsigned char *at = data + i * element;
        values[held++] =
            zigzag_of(ordered(at, element) -
                          foretell(&terms, at, before + i * element, element),
                      element);
        if (held == BLOCK || i + 1 == count) {
            put_block(&bits, values, held, element);
            held = 0;
        }
    }
    put_bits(&bits, 0, bits.count % 8 ? 8 - bits.count % 8 : 0);
    return poise_buf_append(out, data + count * element, len - count * element);
}

static uint64_t get_value(struct unbits *bits, unsigned k, unsigned width)
{
    unsigned unary = 0;

    while (unary < UNARY_MOST && get_bits(bits, 1)) {
        unary++;
    }
    return unary < UNARY_MOST ? (uint64_t)unary << k | get_bits(bits, k)
                              : get_bits(bits, width);
}

int wire_residual_take(const struct wire_grid *grid, unsigned mode,
                       const unsigned char *from, size_t from_len,
                       unsigned char *data, size_t len, size_t before)
{
    struct terms terms;
    struct unbits bits = {.at = from, .end = from + from_len};
    uint32_t element = grid->element;
    size_t count = len / element, rest = len - count * element;
    unsigned k = 0;

    make_terms(grid, mode, &terms);
    for (size_t i = 0; i < count && !bits.is_short; i++) {
        unsigned char *at = data + i * element;
        uint64_t value;
        if (i % BLOCK == 0) {
            k = (unsigned)get_bits(&bits, PARAMETER_BITS);
        }
        value = get_value(&bits, k, 8 * element);
        value = value >> 1 ^ (0 - (value & 1));
        value += foretell(&terms, at, before + i * element, element);
        put_ordered(value, element, at);
    }
    if (bits.is_short || (size_t)(bits.end - bits.at) != rest) {
        return -EBADMSG;
    }
    memcpy(data + count * element, bits.at, rest);
    return 0;
}

/* ---- a message ---------------------------------------------------------- */

/* Bytes that data take by themselves, about. */
static size_t packed_size(struct wire_residual *residual, const void *data,
                          size_t len)
{
    enum { FAST = 1 };
    unsigned char out[2 * WIRE_MISS_MOST];
    size_t size;

    if (!residual->judge) {
        residual->judge = ZSTD_createCCtx();
    }
    size = residual->judge ? ZSTD_compressCCtx(residual->judge, out, sizeof out,
                                               data, len, FAST)
                           : 0;
    return ZSTD_isError(size) ? len : size;
}

int wire_residual_try(struct wire_residual *residual,
                      const struct poise_buf *group, size_t before, size_t most,
                      struct poise_buf *out)
{
    const struct wire_grid *grid = &residual->grid;
    size_t len = group->len - before, size;
    const unsigned char *data;
    struct poise_buf made = {0};
    unsigned mode;
    int code;

    if (grid->element == 0 || len < LEAST || len > WIRE_MISS_MOST) {
        return 0;
    }
    data = (const unsigned char *)group->data + before;
    mode = wire_residual_best(grid, data, len, before);
    code = wire_residual_make(grid, mode, data, len, before, &made);
    size = made.len + HEAD;
    if (code == 0 && size < most && size < packed_size(residual, data, len)) {
        poise_buf_varint(out, grid->element);
        poise_buf_varint(out, mode);
        for (size_t i = 0; i < WIRE_STRIDES; i++) {
            if (mode >> 2 * i & 3) {
                poise_buf_varint(out, grid->strides[i]);
            }
        }
        poise_buf_varint(out, made.len);
        code = poise_buf_append(out, made.data, made.len);
        code = code < 0 ? code : 1;
    }
    poise_buf_free(&made);
    return code;
}

int wire_residual_read(struct poise_reader *message, struct wire_grid *grid,
                       unsigned *mode, size_t *len)
{
    uint64_t element = poise_reader_varint(message);
    uint64_t modes = poise_reader_varint(message);

    memset(grid, 0, sizeof *grid);
    grid->element = (uint32_t)element;
    for (size_t i = 0; i < WIRE_STRIDES; i++) {
        if (modes >> 2 * i & 3) {
            grid->strides[i] = poise_reader_varint(message);
        }
    }
    *len = poise_reader_varint(message);
    *mode = (unsigned)modes;
    return message->error || (element != 4 && element != 8) || modes > 255 ||
                   !wire_residual_is_mode(grid, *mode)
               ? wire_bad("differences from nothing")
               : 0;
}
