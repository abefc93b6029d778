/* Files to sort. */
#include "internal.h"

#include <errno.h>
#include <string.h>

const char *const poise_sort_pattern_names[] = {
    "random", "sorted", "reverse", "equal", "few", "skew", NULL};

struct generator {
    const struct poise_sort_type *type;
    enum poise_sort_pattern pattern;
    uint64_t count;
    struct poise_rng rng;
};

/* The key of item `i`, all 64 bits of it used: the highest come first. */
static uint64_t next_key(struct generator *gen, uint64_t i)
{
    uint64_t step = gen->count > 1 ? UINT64_MAX / (gen->count - 1) : 1;
    uint64_t x;

    switch (gen->pattern) {
    case POISE_SORT_SORTED:
        return i * step;
    case POISE_SORT_REVERSE:
        return (gen->count - 1 - i) * step;
    case POISE_SORT_EQUAL:
        return UINT64_C(0x4242424242424242);
    case POISE_SORT_FEW:
        return poise_hash_u64(1 + poise_rng_below(&gen->rng, 16));
    case POISE_SORT_SKEW:
        x = poise_rng_next(&gen->rng);
        /* Halved as often as a coin shows heads. */
        return poise_rng_next(&gen->rng) >> (__builtin_ctzll(x | 1ull << 60));
    default:
        return poise_rng_next(&gen->rng);
    }
}

/* A number of the kind, in the order of the key. */
static size_t put_number(enum poise_sort_kind kind, uint64_t key, char *to)
{
    uint64_t large = key;
    uint32_t small = (uint32_t)(key >> 32);

    if (kind == POISE_SORT_F64) {
        double x = (double)key / 0x1p63 - 1;

        memcpy(&large, &x, 8);
    } else if (kind == POISE_SORT_F32) {
        float x = (float)((double)key / 0x1p63 - 1);

        memcpy(&small, &x, 4);
    } else if (kind == POISE_SORT_I64) {
        sort_decode(kind, &large, &large, 1);
    } else if (kind == POISE_SORT_I32) {
        sort_decode(kind, &small, &small, 1);
    }
    if (kind == POISE_SORT_U32 || kind == POISE_SORT_I32 ||
        kind == POISE_SORT_F32) {
        memcpy(to, &small, 4);
        return 4;
    }
    memcpy(to, &large, 8);
    return 8;
}

/* As gensort's: key, number, filling. Constant patterns have constant keys. */
static size_t put_record(struct generator *gen, uint64_t i, uint64_t key,
                         char *to)
{
    const struct poise_sort_type *type = gen->type;
    char *place = to + type->key_offset;
    uint64_t more =
        gen->pattern == POISE_SORT_RANDOM ? poise_rng_next(&gen->rng) : 0;

    for (uint32_t j = 0; j < type->record_bytes; j++) {
        uint64_t digits = j < 64 ? i >> (j / 4 * 4 % 64) : 0;

        to[j] = (char)('A' + (j % 32 < 16 ? digits & 15 : (i + j / 32) % 26));
    }
    if (type->key_kind != POISE_SORT_RECORD) {
        put_number(type->key_kind, key, place);
        return type->record_bytes;
    }
    for (uint32_t j = 0; j < type->key_bytes; j++) {
        uint64_t from = j < 8 ? key : j < 16 ? more : 0;

        place[j] = (char)(from >> (56 - 8 * (j % 8)));
    }
    return type->record_bytes;
}

/* 16 characters for the key, more for company, a newline. */
static size_t put_line(uint64_t i, uint64_t key, char *to)
{
    enum { LEAST = 20, MORE = 59 };
    uint64_t hash = poise_hash_u64(i + 1);
    size_t len = LEAST + hash % MORE;

    for (size_t j = 0; j < len; j++) {
        to[j] = j < 16 ? (char)('a' + (key >> (60 - 4 * j) & 15))
                       : (char)('a' + (hash >> (j % 13 * 4) & 15));
    }
    to[len] = '\n';
    return len + 1;
}

static size_t put_next(struct generator *gen, uint64_t i, char *to)
{
    uint64_t key = next_key(gen, i);

    switch (gen->type->kind) {
    case POISE_SORT_LINES:
        return put_line(i, key, to);
    case POISE_SORT_RECORD:
        return put_record(gen, i, key, to);
    default:
        return put_number(gen->type->kind, key, to);
    }
}

/* One buffer is filled while the other is written. */
static int generate_all(struct generator *gen, struct extmem_output *output,
                        char *memory, size_t half, size_t most, uint64_t *bytes)
{
    struct extmem_writes writes = {0};
    uint64_t i = 0, offset = 0;
    unsigned turn = 0;
    int code = 0;

    while (i < gen->count && code == 0) {
        char *begin = memory + turn * half + offset % EXTMEM_PAGE;
        char *end = memory + (turn + 1) * half - most, *at = begin;

        while (i < gen->count && at <= end) {
            at += put_next(gen, i++, at);
        }
        code = extmem_output_put(output, begin, (size_t)(at - begin), offset,
                                 &writes);
        offset += (uint64_t)(at - begin);
        turn ^= 1;
    }
    *bytes = offset;
    if (code == 0) {
        code = extmem_writes_wait(&writes);
    } else {
        extmem_writes_wait(&writes);
    }
    return code;
}

int poise_sort_generate(const char *path,
                        const struct poise_sort_options *options,
                        enum poise_sort_pattern pattern, uint64_t count,
                        uint64_t seed)
{
    struct generator gen = {
        .type = &options->type, .pattern = pattern, .count = count};
    bool lines = options->type.kind == POISE_SORT_LINES;
    uint64_t item = sort_item_bytes(&options->type), bytes;
    size_t most = lines ? 128 : item;
    size_t half = extmem_round_up((4 << 20) + 2 * most, EXTMEM_PAGE);
    struct extmem_output *output;
    char *memory;
    int code = sort_type_check(&options->type);

    if (code == 0 && __builtin_mul_overflow(count, lines ? 1 : item, &bytes)) {
        code = poise_error_set(EFBIG, "generate", path, NULL);
    }
    if (code < 0) {
        return code;
    }
    poise_rng_seed(&gen.rng, seed);
    code = extmem_output_open(path, lines ? 0 : bytes,
                              &(struct poise_output_options){0}, &options->disk,
                              &output);
    if (code < 0) {
        return code;
    }
    memory = poise_huge_alloc(2 * half);
    code = memory ? generate_all(&gen, output, memory, half, most, &bytes)
                  : -ENOMEM;
    if (code == 0) {
        code = extmem_output_commit(output, bytes, options->sync);
    } else {
        extmem_output_abort(output);
    }
    poise_huge_free(memory, 2 * half);
    return code;
}
