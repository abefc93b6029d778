/* Room flow: the model and one node; several are in tests/flow_nodes. */
#include "common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "flow/node/state.h"

/* ---- the life of blocks ------------------------------------------------- */

/* Whether a change is among those that internal.h lists. */
static bool may_become(enum flow_block_state from, enum flow_block_state to)
{
    switch (from) {
    case FLOW_UNSOUGHT:
        return to == FLOW_SOUGHT || to == FLOW_OPEN || to == FLOW_HERE;
    case FLOW_SOUGHT:
        return to != FLOW_SOUGHT;
    case FLOW_REQUESTED:
        return to == FLOW_SOUGHT || to == FLOW_OPEN || to == FLOW_HERE;
    case FLOW_OPEN:
        return to == FLOW_HERE;
    default:
        return false;
    }
}

/* Every sequence of changes of two blocks, tried and refused ones: what is on
 * the list of those that are looked for are those in that state, each once. */
static void test_block_states(void **state)
{
    (void)state;
    enum { STEPS = 5, CHOICES = 2 * FLOW_BLOCK_STATES };
    struct flow_node node = {0};
    unsigned long all = 1;
    for (int i = 0; i < STEPS; i++) {
        all *= CHOICES;
    }
    for (unsigned long walk = 0; walk < all; walk++) {
        struct flow_block blocks[2] = {0};
        unsigned long rest = walk;
        struct flow_more more[2] = {flow_no_more, flow_no_more};
        blocks[0].more = &more[0];
        blocks[1].more = &more[1];
        node.seeking = NULL;
        for (int i = 0; i < STEPS; i++, rest /= CHOICES) {
            struct flow_block *block = &blocks[rest % CHOICES % 2];
            enum flow_block_state from = block->state;
            enum flow_block_state to =
                (enum flow_block_state)(rest % CHOICES / 2);
            bool may = may_become(from, to);
            int code = flow_block_become(&node, block, to);
            assert_int_equal(code, may ? 0 : -EPROTO);
            assert_int_equal(block->state, may ? to : from);
            unsigned listed = 0;
            for (struct flow_block **at = &node.seeking; *at;
                 at = &(*at)->more->next_seeking) {
                assert_ptr_equal((*at)->more->seeking_at, at);
                assert_int_equal((*at)->state, FLOW_SOUGHT);
                listed++;
            }
            assert_int_equal(listed, (blocks[0].state == FLOW_SOUGHT) +
                                         (blocks[1].state == FLOW_SOUGHT));
        }
    }
}

/* Memory that is used again is aligned, holds what is asked for, and is nobody
 * else's. */
static void test_spare_memory(void **state)
{
    (void)state;
    enum { HELD = 40 };
    struct flow_processor processor = {0};
    struct flow_made *held[HELD] = {NULL};
    struct poise_rng rng;
    poise_rng_seed(&rng, 5);
    for (unsigned turn = 0; turn < 4000; turn++) {
        unsigned i = (unsigned)poise_rng_below(&rng, HELD);
        if (held[i]) {
            const unsigned char *data = flow_made_data(held[i]);
            for (size_t b = 0; b < held[i]->len; b++) {
                assert_int_equal(data[b], i);
            }
            held[i]->next = NULL;
            flow_processor_reuse(&processor, held[i]);
        }
        size_t len = poise_rng_below(&rng, 10) ? poise_rng_below(&rng, 200)
                                               : poise_rng_below(&rng, 9000);
        held[i] = flow_processor_make(&processor, len);
        assert_non_null(held[i]);
        assert_int_equal(held[i]->len, len);
        assert_true(held[i]->cap >= len);
        assert_int_equal((uintptr_t)flow_made_data(held[i]) % 64, 0);
        memset(flow_made_data(held[i]), (int)i, len);
    }
    for (unsigned i = 0; i < HELD; i++) {
        flow_trash_free(held[i]);
    }
    for (unsigned i = 0; i < FLOW_SPARE_SIZES; i++) {
        flow_trash_free(processor.spare[i]);
    }
}

/* ---- runs --------------------------------------------------------------- */

static const struct {
    enum mix_pattern pattern;
    unsigned dims;
    int64_t side, versions;
} cases[] = {
    {MIX_STENCIL, 1, 1, 1}, {MIX_STENCIL, 1, 7, 30}, {MIX_STENCIL, 2, 5, 20},
    {MIX_STENCIL, 3, 3, 8}, {MIX_SWEEP, 2, 5, 10},   {MIX_FFT, 1, 16, 20},
    {MIX_TREE, 1, 16, 10},  {MIX_RANDOM, 1, 11, 20}, {MIX_LEAPFROG, 1, 9, 20},
    {MIX_DATA, 1, 8, 20},
};

static void test_patterns(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (unsigned threads = 1; threads <= 3; threads += 2) {
            struct mix mix;
            struct poise_flow_options options = {.threads = threads,
                                                 .window = 1 + c % 5};
            struct poise_flow_stats stats;
            mix_init(&mix, cases[c].pattern, cases[c].dims, cases[c].side,
                     cases[c].versions);
            int code = mix_run(&mix, &options, &stats);
            if (code < 0) {
                fail_msg("case %zu: %s", c, mix_error());
            }
            assert_int_equal(stats.blocks,
                             mix.places * (uint64_t)cases[c].versions);
            assert_int_equal(stats.nodes[0].blocks, stats.blocks);
            assert_int_equal(mix.computed, stats.blocks);
            assert_true(mix.results >= mix.places);
            poise_flow_stats_free(&stats);
            mix_free(&mix);
        }
    }
}

static void test_two_files(void **state)
{
    (void)state;
    struct mix mix;
    struct poise_flow_options options = {.threads = 2};
    struct poise_flow_stats stats;
    mix_init(&mix, MIX_STENCIL, 2, 4, 12);
    mix_second(&mix);
    if (mix_run(&mix, &options, &stats) < 0) {
        fail_msg("%s", mix_error());
    }
    assert_int_equal(stats.blocks, 2 * 16 * 12);
    poise_flow_stats_free(&stats);
    mix_free(&mix);
}

/* What nobody needs any more is freed: memory is that of a few versions. */
static void test_freed(void **state)
{
    (void)state;
    struct mix mix;
    struct poise_flow_options options = {.window = 3};
    struct poise_flow_stats stats;
    mix_init(&mix, MIX_STENCIL, 1, 8, 300);
    assert_int_equal(mix_run(&mix, &options, &stats), 0);
    /* Blocks are 20 bytes on average, a version 160. */
    assert_true(stats.nodes[0].peak_bytes <= 4 * 160);
    assert_true(stats.nodes[0].freed >= 8 * 290);
    poise_flow_stats_free(&stats);
    mix_free(&mix);
}

/* The same on nodes that send them to each other, whenever they are asked for:
 * while tasks have them in hand, too. */
static void test_freed_by_nodes(void **state)
{
    (void)state;
    struct mix mix;
    struct poise_flow_options options = {
        .nodes = 3, .replicate = POISE_FLOW_REPLICATE_NEVER};
    struct poise_flow_stats stats;
    uint64_t had = 0, freed = 0;
    mix_init(&mix, MIX_STENCIL, 2, 6, 600);
    assert_int_equal(mix_run(&mix, &options, &stats), 0);
    for (unsigned n = 0; n < 3; n++) {
        had += stats.nodes[n].blocks + stats.nodes[n].fetched;
        freed += stats.nodes[n].freed;
    }
    /* But for the last versions, which a neighbour may not have asked for. */
    assert_true(freed + 12 * mix.places >= had);
    poise_flow_stats_free(&stats);
    mix_free(&mix);
}

/* Some blocks of the first file run ahead; a cap holds them back. */
static void test_cap(void **state)
{
    (void)state;
    struct mix mix;
    struct poise_flow_options options = {.threads = 2, .window = 50};
    struct poise_flow_stats stats;
    mix_init(&mix, MIX_FFT, 1, 16, 60);
    options.memory_bytes = 1;
    assert_int_equal(mix_run(&mix, &options, &stats), 0);
    assert_true(stats.nodes[0].peak_bytes <= 3 * 16 * 20 + 64);
    poise_flow_stats_free(&stats);
    mix_free(&mix);
}

/* ---- what else callbacks may do ----------------------------------------- */

struct odd {
    uint64_t calls;
    bool reads_first; /**< the first block, which is long freed */
};

/* Block x of version v writes also the next one, which is so computed no more;
 * reads what it did not name; asks what exists. */
static int odd_depend(struct poise_flow_task *task,
                      const struct poise_flow_address *block,
                      const struct poise_flow_chunk *file,
                      enum poise_flow_direction direction,
                      struct poise_flow_list *out, void *arg)
{
    struct poise_flow_address a = *block;
    bool back = direction == POISE_FLOW_BACKWARD;
    (void)task;
    (void)arg;
    a.version += back ? -1 : 1;
    if (a.version >= 0 && a.version < file->versions.to) {
        return poise_flow_list_add(out, &a) < 0 ? -ENOMEM : 1;
    }
    return 1;
}

static int odd_write(struct poise_flow_task *task,
                     const struct poise_flow_address *block, uint64_t value)
{
    uint64_t *data = poise_flow_make(task, 100);
    if (!data) {
        return -ENOMEM;
    }
    *data = value;
    return poise_flow_write(task, block, data, sizeof value);
}

static int odd_compute(struct poise_flow_task *task,
                       const struct poise_flow_address *block,
                       const struct poise_flow_chunk *file, void *arg)
{
    struct poise_flow_address other = *block, recent;
    struct poise_flow_view view;
    struct odd *odd = arg;
    uint64_t sum = 0;
    (void)file;
    __atomic_add_fetch(&odd->calls, 1, __ATOMIC_RELAXED);
    other.index[0] = 0;
    other.version = 0;
    if (block->version > 0 && odd->reads_first) {
        int code = poise_flow_read(task, &other, &view);
        if (code < 0) {
            return code;
        }
        sum += *(const uint64_t *)view.data - 1;
    }
    if (block->version > 0) {
        other.version = block->version - 1;
        other.index[0] = block->index[0];
        if (poise_flow_exists(task, &other) != 1 ||
            poise_flow_most_recent(task, &other, &recent) != 1 ||
            recent.version < other.version) {
            return -EPROTO;
        }
        int code = poise_flow_read(task, &other, &view);
        if (code < 0) {
            return code;
        }
        sum += *(const uint64_t *)view.data;
    }
    if (poise_flow_make(task, 10) == NULL) { /* made for nothing */
        return -ENOMEM;
    }
    other = *block;
    other.index[0] ^= 1;
    int code = odd_write(task, &other, sum + 1);
    return code < 0 ? code : odd_write(task, block, sum + 1);
}

static int odd_output(const struct poise_flow_address *block, const void *data,
                      size_t len, void *arg)
{
    uint64_t *results = arg;
    assert_int_equal(block->version, 9);
    assert_int_equal(len, sizeof(uint64_t));
    results[block->index[0]] = *(const uint64_t *)data;
    return 0;
}

static void test_writes_aside(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct odd odd = {.reads_first = i / 2};
        uint64_t results[4] = {0};
        struct poise_flow_file file = {
            .name = "odd",
            .shape = {.dims = 1, .versions = {0, 10}, .index = {{0, 4}}}};
        struct poise_flow_job job = {
            &file,
            1,
            {.depend = odd_depend, .compute = odd_compute, .arg = &odd}};
        struct poise_flow_options options = {
            .threads = 1 + i % 2, .output = odd_output, .output_arg = results};
        struct poise_flow_stats stats;
        if (poise_flow_run(&job, &options, &stats) < 0) {
            fail_msg("%s", mix_error());
        }
        for (int k = 0; k < 4; k++) {
            assert_int_equal(results[k], 10);
        }
        if (i == 0) {
            assert_int_equal(odd.calls, 20); /* half of the blocks */
            assert_int_equal(stats.nodes[0].redone, 0);
        } else if (i == 2) {
            assert_true(stats.nodes[0].redone > 0);
        }
        poise_flow_stats_free(&stats);
    }
}

/* An iterator that goes backwards through the places. */
struct back {
    struct poise_flow_chunk chunk;
    struct poise_flow_address at;
    bool over;
};
static uint64_t iterators;

static void *back_start(const struct poise_flow_chunk *chunk, void *arg)
{
    (void)arg;
    struct back *back = calloc(1, sizeof *back);
    assert_non_null(back);
    back->chunk = *chunk;
    back->at.version = chunk->versions.from;
    back->at.index[0] = chunk->index[0].to;
    iterators++;
    return back;
}

static bool back_next(void *iterator, struct poise_flow_address *out)
{
    struct back *back = iterator;
    if (back->at.index[0] == 1) { /* it leaves one out */
        back->at.version++;
        back->at.index[0] = back->chunk.index[0].to;
    }
    if (back->at.version >= back->chunk.versions.to) {
        return false;
    }
    back->at.index[0]--;
    *out = back->at;
    return true;
}

static void back_done(void *iterator)
{
    iterators--;
    free(iterator);
}

static int64_t order[64];
static unsigned ordered;
static int note_order(struct mix *mix, struct poise_flow_task *task,
                      const struct poise_flow_address *block, uint64_t *value)
{
    (void)mix;
    (void)task;
    (void)value;
    if (block->version == 0) {
        order[ordered++ % 64] = block->index[0];
    }
    return 0;
}

static void test_iterator(void **state)
{
    (void)state;
    struct mix mix;
    struct poise_flow_options options = {.window = 2};
    mix_init(&mix, MIX_STENCIL, 1, 6, 7);
    mix.job.app.iterate = back_start;
    mix.job.app.next = back_next;
    mix.job.app.done = back_done;
    mix.spoil = note_order;
    ordered = 0;
    assert_int_equal(mix_run(&mix, &options, NULL), 0);
    assert_int_equal(iterators, 0);
    assert_int_equal(ordered, 6);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(order[i], 5 - i);
    }
    assert_int_equal(order[5], 0);
    mix.job.app.done = NULL;
    assert_int_equal(mix_run(&mix, &options, NULL), -EINVAL);
    mix_free(&mix);
}

/* A job of versions around 2^32 that need nothing: the oldest goes first. */
static int alone_depend(struct poise_flow_task *task,
                        const struct poise_flow_address *block,
                        const struct poise_flow_chunk *file,
                        enum poise_flow_direction direction,
                        struct poise_flow_list *out, void *arg)
{
    (void)task;
    (void)block;
    (void)file;
    (void)direction;
    (void)out;
    (void)arg;
    return 1;
}

static int alone_compute(struct poise_flow_task *task,
                         const struct poise_flow_address *block,
                         const struct poise_flow_chunk *file, void *arg)
{
    void *data = poise_flow_make(task, 1);
    (void)file;
    (void)arg;
    order[ordered++ % 64] = block->version;
    return data ? poise_flow_write(task, block, data, 1) : -ENOMEM;
}

static void test_large_versions(void **state)
{
    (void)state;
    const int64_t from = (INT64_C(1) << 32) - 3, to = from + 6;
    struct poise_flow_file file = {
        .name = "late",
        .shape = {.dims = 1, .versions = {from, to}, .index = {{0, 2}}}};
    struct poise_flow_job job = {.files = &file, .file_count = 1};
    struct poise_flow_options options = {.window = 6};
    job.app.depend = alone_depend;
    job.app.compute = alone_compute;
    ordered = 0;
    assert_int_equal(poise_flow_run(&job, &options, NULL), 0);
    assert_int_equal(ordered, 12);
    for (unsigned i = 0; i < ordered; i++) {
        assert_int_equal(order[i], from + i / 2);
    }
}

/* ---- what is wrong ------------------------------------------------------ */

static int bad_kind;
static int bad_depend(struct poise_flow_task *task,
                      const struct poise_flow_address *block,
                      const struct poise_flow_chunk *file,
                      enum poise_flow_direction direction,
                      struct poise_flow_list *out, void *arg)
{
    struct poise_flow_address a = *block;
    bool back = direction == POISE_FLOW_BACKWARD;
    (void)task;
    (void)arg;
    if (bad_kind == 0) { /* a ring within a version */
        a.index[0] = (a.index[0] + (back ? 1 : 3)) % 4;
        return poise_flow_list_add(out, &a) < 0 ? -ENOMEM : 1;
    }
    if (bad_kind == 1 && back) { /* outside */
        a.index[0] = file->index[0].to;
        return poise_flow_list_add(out, &a) < 0 ? -ENOMEM : 1;
    }
    if (bad_kind == 2 && back) { /* never known */
        return 0;
    }
    if (bad_kind == 3) { /* fails */
        return -EIO;
    }
    if (bad_kind == 4 && back) { /* itself */
        return poise_flow_list_add(out, &a) < 0 ? -ENOMEM : 1;
    }
    if (bad_kind == 5 && back && block->version > 0) { /* one-sided */
        a.version--;
        return poise_flow_list_add(out, &a) < 0 ? -ENOMEM : 1;
    }
    return 1;
}

static int bad_compute(struct poise_flow_task *task,
                       const struct poise_flow_address *block,
                       const struct poise_flow_chunk *file, void *arg)
{
    static uint64_t dice;
    struct poise_flow_address a = *block;
    struct poise_flow_view view;
    (void)file;
    (void)arg;
    switch (bad_kind) {
    case 6:
        return 0;
    case 7:
        return -EDOM;
    case 8:
        a.version = 99;
        return poise_flow_read(task, &a, &view);
    case 9:
        return odd_write(task, block,
                         __atomic_add_fetch(&dice, 1, __ATOMIC_RELAXED));
    case 10: { /* two values for one address */
        int code = odd_write(task, block, 1);
        return code < 0 ? code : odd_write(task, block, 2);
    }
    case 11: {
        static uint64_t own;
        return poise_flow_write(task, block, &own, sizeof own);
    }
    case 12: {
        void *data = poise_flow_make(task, 8);
        return data ? poise_flow_write(task, block, data, 9) : -ENOMEM;
    }
    case 13: { /* two that read each other, and did not say so */
        a.version = a.version < 2 ? 1 - a.version : 2;
        int code = a.version < 2 ? poise_flow_read(task, &a, &view) : 0;
        return code < 0 ? code : odd_write(task, block, 1);
    }
    default:
        return odd_write(task, block, 1);
    }
}

static const struct {
    int code;
    const char *says;
    double check;
} bad_cases[] = {
    {-ELOOP, "odd:0[1] needs odd:0[2] needs odd:0[3] needs odd:0[0]", 0},
    {-ERANGE, "'odd:0[4]': it lies outside", 0},
    {-EPROTO, "stay unknown", 0},
    {-EIO, "ask for dependencies of block 'odd:", 0},
    {-ELOOP, "it depends on itself", 0},
    {-EILSEQ, "whose forward list does not name it", 1},
    {-ENODATA, "the callback did not write it", 0},
    {-EDOM, "compute block 'odd:0[", 0},
    {-ERANGE, "'odd:99[", 0},
    {-EILSEQ, "computed again, byte 0 of 8 differs", 1},
    {-EEXIST, "with other bytes", 0},
    {-EINVAL, "not made by this call", 0},
    {-EINVAL, "more bytes than were made", 0},
    {-ELOOP, "odd:0[0] needs odd:1[0] needs odd:0[0]", 0},
};

static void test_bad_callbacks(void **state)
{
    (void)state;
    struct poise_flow_file file = {
        .name = "odd",
        .shape = {.dims = 1, .versions = {0, 3}, .index = {{0, 4}}}};
    struct poise_flow_job job = {
        &file, 1, {.depend = bad_depend, .compute = bad_compute}};
    for (size_t i = 0; i < sizeof bad_cases / sizeof bad_cases[0]; i++) {
        struct poise_flow_options options = {.threads = 1 + i % 2,
                                             .check = bad_cases[i].check};
        bad_kind = (int)i;
        int code = poise_flow_run(&job, &options, NULL);
        if (code != bad_cases[i].code ||
            (code < 0 && !strstr(mix_error(), bad_cases[i].says))) {
            fail_msg("case %zu: %d, %s", i, code, mix_error());
        }
    }
}

static void test_bad_jobs(void **state)
{
    (void)state;
    struct mix mix;
    struct poise_flow_options options = {0};
    struct poise_flow_part parts[3] = {
        {{.dims = 1, .versions = {0, 9}, .index = {{0, 4}}}, 0},
        {{.dims = 1, .versions = {0, 5}, .index = {{4, 8}}}, 0},
        {{.dims = 1, .versions = {5, 9}, .index = {{4, 8}}}, 0},
    };
    mix_init(&mix, MIX_STENCIL, 1, 8, 9);
    mix.files[0].parts = parts;
    mix.files[0].part_count = 3;
    assert_int_equal(mix_run(&mix, &options, NULL), 0);
    parts[2].chunk.versions.from = 6;
    assert_int_equal(mix_run(&mix, &options, NULL), -EINVAL);
    assert_non_null(strstr(mix_error(), "none covers version 5, block 4"));
    parts[2].chunk.versions.from = 4;
    assert_int_equal(mix_run(&mix, &options, NULL), -EINVAL);
    assert_non_null(strstr(mix_error(), "number 2 overlaps another one at "
                                        "version 4, block 4"));
    parts[2].chunk.versions.to = 10;
    assert_int_equal(mix_run(&mix, &options, NULL), -EINVAL);
    assert_non_null(strstr(mix_error(), "reaches out of the file"));
    mix.files[0].part_count = 0;
    mix.files[0].adapt = -1;
    assert_int_equal(mix_run(&mix, &options, NULL), -EINVAL);
    mix.files[0].adapt = 0;
    mix.job.file_count = 0;
    assert_int_equal(poise_flow_run(&mix.job, &options, NULL), -EINVAL);
    mix_free(&mix);
}

/* The k-th allocation fails, for every k: an error, or it did not matter. */
static void test_no_memory(void **state)
{
    (void)state;
    bool failed = true;
    for (uint64_t k = 1; failed; k += 1 + k / 40) {
        struct mix mix;
        struct poise_flow_options options = {.threads = 2};
        mix_init(&mix, MIX_STENCIL, 1, 12, 20);
        mix_second(&mix);
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, true);
        int code = mix_run(&mix, &options, NULL);
        failed = poise_fault_calls(POISE_FAULT_ALLOC) >= k;
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        assert_int_equal(code, failed ? -ENOMEM : 0);
        mix_free(&mix);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block_states),
        cmocka_unit_test(test_spare_memory),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_two_files),
        cmocka_unit_test(test_freed),
        cmocka_unit_test(test_freed_by_nodes),
        cmocka_unit_test(test_cap),
        cmocka_unit_test(test_writes_aside),
        cmocka_unit_test(test_iterator),
        cmocka_unit_test(test_large_versions),
        cmocka_unit_test(test_bad_callbacks),
        cmocka_unit_test(test_bad_jobs),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
