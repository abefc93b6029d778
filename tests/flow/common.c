#include "common.h"

#include <poise/core.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Blocks vary in size: 1 to 4 words, by place. */
#define WORDS(place) (1 + (place) % 4)

static int64_t side_of(const struct poise_flow_chunk *file)
{
    return file->index[0].to;
}

/* Value of a block from its address and what it reads, in the order of the
 * list. */
static uint64_t mix_start(const struct poise_flow_address *block)
{
    uint64_t value = poise_hash_u64(block->file + 17);
    value = poise_hash_u64(value + (uint64_t)block->version + 1);
    for (unsigned d = 0; d < 3; d++) {
        value = poise_hash_u64(value ^ (uint64_t)block->index[d]);
    }
    return value;
}

static uint64_t mix_with(uint64_t value, uint64_t other)
{
    return poise_hash_u64(value * 3 + other);
}

static int add(struct poise_flow_list *out,
               const struct poise_flow_address *block, unsigned dim, int64_t by,
               int64_t back)
{
    struct poise_flow_address a = *block;
    a.index[dim] += by;
    a.version -= back;
    return poise_flow_list_add(out, &a);
}

static int needs_neighbours(const struct poise_flow_address *block,
                            const struct poise_flow_chunk *file,
                            struct poise_flow_list *out)
{
    int code = 0;
    for (unsigned d = 0; d < file->dims; d++) {
        if (code == 0 && block->index[d] > 0) {
            code = add(out, block, d, -1, 1);
        }
        if (code == 0 && block->index[d] + 1 < file->index[d].to) {
            code = add(out, block, d, 1, 1);
        }
    }
    return code;
}

/* Where the two dice of a block lead, other than to itself. */
static void dice(const struct poise_flow_address *block, int64_t side,
                 int64_t to[2])
{
    uint64_t h =
        poise_hash_u64((uint64_t)(block->version * 1000 + block->index[0]));
    to[0] = (int64_t)(h % (uint64_t)side);
    to[1] = (int64_t)(h / 1000 % (uint64_t)side);
    to[1] = to[1] == to[0] ? block->index[0] : to[1];
    to[0] = to[0] == to[1] ? block->index[0] : to[0];
}

static int needs_elsewhere(enum mix_pattern pattern,
                           const struct poise_flow_address *block,
                           const struct poise_flow_chunk *file,
                           struct poise_flow_list *out)
{
    int64_t x = block->index[0], side = side_of(file), to[2], partner;
    int code = 0;
    switch (pattern) {
    case MIX_FFT:
        partner = x ^ (INT64_C(1) << (block->version % 4));
        return partner < side ? add(out, block, 0, partner - x, 1) : 0;
    case MIX_RANDOM:
        dice(block, side, to);
        for (int i = 0; code == 0 && i < 2; i++) {
            if (to[i] != x) {
                code = add(out, block, 0, to[i] - x, 1);
            }
        }
        return code;
    default:
        return 0;
    }
}

/* The blocks that one needs, when all is known. */
static int needs(const struct mix *mix, const struct poise_flow_address *block,
                 const struct poise_flow_chunk *file,
                 struct poise_flow_list *out)
{
    int code = 0;
    if (block->file == 1) {
        struct poise_flow_address a = *block;
        a.file = 0;
        if (block->version > 0) {
            code = add(out, &a, 0, 0, 1);
        }
    }
    if (code < 0 || (block->version == 0 && mix->pattern != MIX_SWEEP)) {
        return code;
    }
    if (mix->pattern == MIX_TREE) {
        return add(out, block, 0, block->index[0] / 2 - block->index[0], 1);
    }
    if (block->version > 0) {
        code = add(out, block, 0, 0, 1);
    }
    if (code == 0 && mix->pattern == MIX_LEAPFROG && block->version > 1) {
        code = add(out, block, 0, 0, 2);
    }
    if (code < 0) {
        return code;
    }
    if (mix->pattern == MIX_STENCIL || mix->pattern == MIX_LEAPFROG) {
        return needs_neighbours(block, file, out);
    }
    for (unsigned d = 0;
         code == 0 && mix->pattern == MIX_SWEEP && d < file->dims; d++) {
        if (block->index[d] > 0) {
            code = add(out, block, d, -1, 0);
        }
    }
    return code < 0 ? code : needs_elsewhere(mix->pattern, block, file, out);
}

static bool same(const struct poise_flow_address *a,
                 const struct poise_flow_address *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void place_to_address(const struct poise_flow_chunk *file, uint64_t p,
                             struct poise_flow_address *out)
{
    for (unsigned d = file->dims; d-- > 0;) {
        out->index[d] = (int64_t)(p % (uint64_t)side_of(file));
        p /= (uint64_t)side_of(file);
    }
}

/* All blocks whose needs name this one: by trying all that could. */
static int needed_by(const struct mix *mix,
                     const struct poise_flow_address *block,
                     struct poise_flow_list *out)
{
    struct poise_flow_list list = {0};
    int code = 0;
    for (uint32_t f = block->file; f < mix->job.file_count; f++) {
        const struct poise_flow_chunk *file = &mix->files[f].shape;
        for (int64_t v = block->version;
             v <= block->version + 2 && v < file->versions.to; v++) {
            for (uint64_t p = 0; code == 0 && p < mix->places; p++) {
                struct poise_flow_address a = {.file = f, .version = v};
                place_to_address(file, p, &a);
                list.count = 0;
                code = needs(mix, &a, file, &list);
                for (size_t i = 0; code == 0 && i < list.count; i++) {
                    if (same(&list.items[i], block)) {
                        code = poise_flow_list_add(out, &a);
                    }
                }
            }
        }
    }
    free(list.items);
    return code;
}

/* The one that a block of MIX_DATA names by the value of its predecessor. */
static int64_t named(uint64_t value, int64_t side)
{
    return (int64_t)(value % (uint64_t)side);
}

static int mix_depend(struct poise_flow_task *task,
                      const struct poise_flow_address *block,
                      const struct poise_flow_chunk *file,
                      enum poise_flow_direction direction,
                      struct poise_flow_list *out, void *arg)
{
    struct mix *mix = arg;
    struct poise_flow_view view;
    int code;
    if (direction == POISE_FLOW_FORWARD && mix->pattern == MIX_DATA) {
        /* Anybody of the next version may name it. */
        struct poise_flow_address a = *block;
        code = 0;
        a.version++;
        for (int64_t x = 0;
             code == 0 && a.version < file->versions.to && x < side_of(file);
             x++) {
            a.index[0] = x;
            code = poise_flow_list_add(out, &a);
        }
        a.file = 1;
        a.index[0] = block->index[0];
        if (code == 0 && block->file == 0 && mix->job.file_count == 2 &&
            a.version < file->versions.to) {
            code = poise_flow_list_add(out, &a);
        }
        return code < 0 ? code : 1;
    }
    if (direction == POISE_FLOW_FORWARD) {
        code = needed_by(mix, block, out);
        return code < 0 ? code : 1;
    }
    code = needs(mix, block, file, out);
    if (code == 0 && mix->pattern == MIX_DATA && block->version > 0) {
        if (poise_flow_read(task, &out->items[0], &view) < 0) {
            return 0;
        }
        /* To hold the lists of all against each other would be the whole
         * version; so all of it is needed, from when one is known. */
        int64_t x = named(*(const uint64_t *)view.data, side_of(file));
        if (x != block->index[0]) {
            code = add(out, block, 0, x - block->index[0], 1);
        }
    }
    return code < 0 ? code : 1;
}

static void mix_work(const struct mix *mix, const struct poise_flow_task *task)
{
    double times = mix->slow ? mix->slow[poise_flow_node(task)] : 1;
    if (mix->sleep_ns > 0) {
        poise_sleep_ns((uint64_t)((double)mix->sleep_ns * times));
    }
}

static int mix_compute(struct poise_flow_task *task,
                       const struct poise_flow_address *block,
                       const struct poise_flow_chunk *file, void *arg)
{
    struct mix *mix = arg;
    struct poise_flow_list list = {0};
    struct poise_flow_view view;
    uint64_t value = mix_start(block);
    uint64_t place = 0;
    int code = needs(mix, block, file, &list);
    __atomic_add_fetch(&mix->computed, 1, __ATOMIC_RELAXED);
    if (code == 0 && mix->pattern == MIX_DATA && block->version > 0) {
        code = poise_flow_read(task, &list.items[0], &view);
        if (code == 0) {
            int64_t x = named(*(const uint64_t *)view.data, side_of(file));
            code = add(&list, block, 0, x - block->index[0], 1);
        }
    }
    for (size_t i = 0; code == 0 && i < list.count; i++) {
        code = poise_flow_read(task, &list.items[i], &view);
        for (size_t w = 0; code == 0 && w < view.len / sizeof value; w++) {
            value = mix_with(value, ((const uint64_t *)view.data)[w]);
        }
        if (code == 0 && i % 2) {
            poise_flow_free(task, &view);
        }
    }
    free(list.items);
    if (code == 0 && mix->spoil) {
        code = mix->spoil(mix, task, block, &value);
    }
    if (code < 0) {
        return code;
    }
    mix_work(mix, task);
    for (unsigned d = 0; d < file->dims; d++) {
        place = place * (uint64_t)side_of(file) + (uint64_t)block->index[d];
    }
    uint64_t *data = poise_flow_make(task, WORDS(place) * sizeof value);
    for (uint64_t w = 0; data && w < WORDS(place); w++) {
        data[w] = value + w;
    }
    return data ? poise_flow_write(task, block, data,
                                   WORDS(place) * sizeof value)
                : -ENOMEM;
}

static int mix_output(const struct poise_flow_address *block, const void *data,
                      size_t len, void *arg)
{
    struct mix *mix = arg;
    uint64_t place = 0;
    for (unsigned d = 0; d < mix->files[0].shape.dims; d++) {
        place = place * (uint64_t)side_of(&mix->files[0].shape) +
                (uint64_t)block->index[d];
    }
    if (block->version == mix->files[0].shape.versions.to - 1 &&
        len == WORDS(place) * sizeof(uint64_t)) {
        mix->got[block->file * mix->places + place] = *(const uint64_t *)data;
    }
    mix->results++;
    return 0;
}

/* Serially, version by version. */
static void mix_expect(struct mix *mix)
{
    const struct poise_flow_chunk *file = &mix->files[0].shape;
    size_t versions = (size_t)file->versions.to, files = mix->job.file_count;
    uint64_t *all = calloc(files * versions * mix->places, sizeof *all);
    struct poise_flow_list list = {0};
    for (size_t v = 0; v < versions; v++) {
        for (size_t i = 0; i < files * mix->places; i++) {
            struct poise_flow_address a = {.file = (uint32_t)(i / mix->places),
                                           .version = (int64_t)v};
            uint64_t p = i % mix->places;
            place_to_address(file, p, &a);
            uint64_t value = mix_start(&a);
            list.count = 0;
            needs(mix, &a, file, &list);
            if (mix->pattern == MIX_DATA && v > 0) {
                /* The first of the list names another one. */
                uint64_t before = all[(v - 1) * mix->places + p];
                add(&list, &a, 0, named(before, side_of(file)) - a.index[0], 1);
            }
            for (size_t k = 0; k < list.count; k++) {
                const struct poise_flow_address *b = &list.items[k];
                uint64_t q = 0;
                for (unsigned d = 0; d < file->dims; d++) {
                    q = q * (uint64_t)side_of(file) + (uint64_t)b->index[d];
                }
                uint64_t other = all[(b->file * versions + (size_t)b->version) *
                                         mix->places +
                                     q];
                for (uint64_t w = 0; w < WORDS(q); w++) {
                    value = mix_with(value, other + w);
                }
            }
            all[(a.file * versions + v) * mix->places + p] = value;
        }
    }
    for (size_t f = 0; f < files; f++) {
        memcpy(mix->expected + f * mix->places,
               all + (f * versions + versions - 1) * mix->places,
               mix->places * sizeof *all);
    }
    free(list.items);
    free(all);
}

static bool mix_is_result(const struct poise_flow_address *block,
                          const struct poise_flow_chunk *file, void *arg)
{
    (void)arg;
    return block->version == file->versions.to - 1;
}

void mix_init(struct mix *mix, enum mix_pattern pattern, unsigned dims,
              int64_t side, int64_t versions)
{
    *mix = (struct mix){.pattern = pattern, .places = 1};
    mix->files[0].name = "mix";
    mix->files[0].shape.dims = dims;
    mix->files[0].shape.versions.to = versions;
    for (unsigned d = 0; d < dims; d++) {
        mix->files[0].shape.index[d].to = side;
        mix->places *= (uint64_t)side;
    }
    mix->job.files = mix->files;
    mix->job.file_count = 1;
    mix->job.app.depend = mix_depend;
    mix->job.app.compute = mix_compute;
    mix->job.app.is_result = mix_is_result;
    mix->job.app.arg = mix;
    mix->expected = calloc(2 * mix->places, sizeof(uint64_t));
    mix->got = calloc(2 * mix->places, sizeof(uint64_t));
    assert_true(mix->expected && mix->got);
}

void mix_second(struct mix *mix)
{
    mix->files[1] = mix->files[0];
    mix->files[1].name = "second";
    mix->job.file_count = 2;
}

void mix_free(struct mix *mix)
{
    free(mix->expected);
    free(mix->got);
}

int mix_run(struct mix *mix, struct poise_flow_options *options,
            struct poise_flow_stats *stats)
{
    size_t count = mix->places * mix->job.file_count;
    memset(mix->got, 0, count * sizeof(uint64_t));
    mix->results = 0;
    mix->computed = 0;
    options->output = mix_output;
    options->output_arg = mix;
    if (options->lost_ns == 0) {
        options->lost_ns = UINT64_C(60000000000); /* the machine may be slow */
    }
    mix->job.app.arg = mix;
    mix->job.files = mix->files;
    mix_expect(mix);
    int code = poise_flow_run(&mix->job, options, stats);
    if (code == 0) {
        assert_memory_equal(mix->got, mix->expected, count * sizeof(uint64_t));
    }
    return code;
}

const char *mix_error(void)
{
    static char text[2000];
    struct poise_buf out = {0};
    poise_error_format(poise_error_last(), &out);
    snprintf(text, sizeof text, "%s", poise_buf_str(&out));
    poise_buf_free(&out);
    return text;
}
