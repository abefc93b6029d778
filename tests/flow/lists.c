/* Room flow: lists of dependencies that the program does not write: patterns,
 * the one direction from the other, one version for all, and stages. */
#include "common.h"

#include <poise/core.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ---- patterns ----------------------------------------------------------- */

static const int64_t knight[][POISE_FLOW_DIMS_MOST] = {
    {1, 2}, {2, 1}, {-1, 2}, {2, -1}, {1, -2}, {-2, 1}, {-1, -2}, {-2, -1}};

static const struct {
    struct poise_flow_pattern pattern;
    size_t most; /* entries of the longest backward list */
} kinds[] = {
    {{.kind = POISE_FLOW_CROSS, .back = 1}, 5},
    {{.kind = POISE_FLOW_CROSS, .back = 1, .reach = 2}, 9},
    {{.kind = POISE_FLOW_CROSS, .back = 1, .torus = true}, 5},
    {{.kind = POISE_FLOW_CROSS, .back = 1, .reach = 9, .torus = true}, 10},
    {{.kind = POISE_FLOW_BOX, .back = 1}, 9},
    {{.kind = POISE_FLOW_BOX, .back = 2, .reach = 2, .torus = true}, 25},
    {{.kind = POISE_FLOW_WAVEFRONT}, 2},
    {{.kind = POISE_FLOW_WAVEFRONT, .reach = 2}, 4},
    {{.kind = POISE_FLOW_ALL, .back = 1}, 30},
    {{.kind = POISE_FLOW_ALL, .back = 1, .torus = true}, 30},
    {{.kind = POISE_FLOW_ALL, .file = 1, .back = 1}, 30},
    {{.kind = POISE_FLOW_TREE}, 2},
    {{.kind = POISE_FLOW_TREE, .reach = 3}, 3},
    {{.kind = POISE_FLOW_OFFSETS,
      .back = 1,
      .offsets = knight,
      .offset_count = 8},
     8},
    {{.kind = POISE_FLOW_OFFSETS,
      .file = 1,
      .back = 0,
      .offsets = knight,
      .offset_count = 8,
      .torus = true},
     8},
};

/* Five rows of six blocks, and one block that others may go into. */
static const struct poise_flow_file board[2] = {
    {.name = "board",
     .shape = {.dims = 2, .versions = {0, 4}, .index = {{2, 7}, {0, 6}}}},
    {.name = "other",
     .shape = {.dims = 2, .versions = {0, 4}, .index = {{2, 7}, {0, 6}}}}};

static struct poise_flow_address at(uint32_t file, int64_t version, int place)
{
    return (struct poise_flow_address){
        file, version, {2 + place / 6, place % 6}};
}

static unsigned times(const struct poise_flow_list *list,
                      const struct poise_flow_address *what)
{
    unsigned count = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct poise_flow_address *item = &list->items[i];
        count += item->file == what->file && item->version == what->version &&
                 memcmp(item->index, what->index, sizeof what->index) == 0;
    }
    return count;
}

/* Each end of each dependency names the other one, once. */
static void test_patterns(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        const struct poise_flow_pattern *p = &kinds[k].pattern;
        size_t most = 0;
        for (int v = 0; v < 4; v++) {
            for (int i = 0; i < 30; i++) {
                struct poise_flow_address block = at(p->file, v, i);
                struct poise_flow_list back = {0};
                assert_int_equal(poise_flow_pattern_list(board, p, 1, &block,
                                                         POISE_FLOW_BACKWARD,
                                                         &back),
                                 0);
                most = back.count > most ? back.count : most;
                for (int j = 0; j < 4 * 30; j++) {
                    struct poise_flow_address other = at(p->of, j / 30, j % 30);
                    struct poise_flow_list on = {0};
                    poise_flow_pattern_list(board, p, 1, &other,
                                            POISE_FLOW_FORWARD, &on);
                    unsigned named = times(&back, &other);
                    if (named > 1 || times(&on, &block) != named) {
                        fail_msg("kind %zu, version %d, %d and %d", k, v, i, j);
                    }
                    free(on.items);
                }
                free(back.items);
            }
        }
        if (most != kinds[k].most) {
            fail_msg("kind %zu: %zu, not %zu", k, most, kinds[k].most);
        }
    }
}

/* Two patterns that name the same block name it once. */
static void test_patterns_twice(void **state)
{
    (void)state;
    const struct poise_flow_pattern both[2] = {
        {.kind = POISE_FLOW_ALL, .back = 1},
        {.kind = POISE_FLOW_CROSS, .back = 1}};
    struct poise_flow_address block = at(0, 1, 7);
    struct poise_flow_list list = {0};
    assert_int_equal(poise_flow_pattern_list(board, both, 2, &block,
                                             POISE_FLOW_BACKWARD, &list),
                     0);
    assert_int_equal(list.count, 30);
    free(list.items);
}

/* ---- jobs by dice ------------------------------------------------------- */

enum { WIDE = 12 };

/** Block x of a version needs y of `apart` versions before as dice say. */
struct dice {
    struct poise_flow_file file;
    struct poise_flow_job job;
    int64_t reach;
    bool uniform;
    bool lies;              /* uniform, but for version 5 */
    int64_t versions, want; /* `want`: the index that leaves out its versions */
    uint64_t got[WIDE];
    unsigned results, strays;
    const double *slow;
};

static bool needs(const struct dice *d, int64_t version, int64_t x,
                  int64_t apart, int64_t y)
{
    int64_t seen = d->uniform && !(d->lies && version == 5) ? 0 : version;
    if (version - apart < 0 || (apart == 0 && (y >= x || d->versions > 1))) {
        return false;
    }
    return poise_hash_u64(
               (uint64_t)(((seen * 9 + apart) * WIDE + x) * WIDE + y + 77)) %
               4 ==
           0;
}

static int dice_depend(struct poise_flow_task *task,
                       const struct poise_flow_address *block,
                       const struct poise_flow_chunk *file,
                       enum poise_flow_direction direction,
                       struct poise_flow_list *out, void *arg)
{
    struct dice *d = arg;
    int code = 0;
    if (file->versions.to != d->versions || block->index[0] >= WIDE ||
        (task && d->job.app.gives != POISE_FLOW_GIVES_BOTH)) {
        __atomic_fetch_add(&d->strays, 1, __ATOMIC_RELAXED);
    }
    for (int64_t apart = 0; apart <= d->reach; apart++) {
        for (int64_t y = 0; code == 0 && y < WIDE; y++) {
            bool back = direction == POISE_FLOW_BACKWARD;
            struct poise_flow_address other = {
                .version = block->version + (back ? -apart : apart),
                .index = {y}};
            bool named =
                back ? needs(d, block->version, block->index[0], apart, y)
                     : other.version < d->versions &&
                           needs(d, other.version, y, apart, block->index[0]);
            code = named ? poise_flow_list_add(out, &other) : 0;
        }
    }
    return code < 0 ? code : 1;
}

static int dice_compute(struct poise_flow_task *task,
                        const struct poise_flow_address *block,
                        const struct poise_flow_chunk *file, void *arg)
{
    struct dice *d = arg;
    uint64_t value =
        poise_hash_u64((uint64_t)(block->version * WIDE + block->index[0]));
    (void)file;
    for (int64_t apart = 0; apart <= d->reach; apart++) {
        for (int64_t y = 0; y < WIDE; y++) {
            struct poise_flow_address other = {
                .version = block->version - apart, .index = {y}};
            struct poise_flow_view view;
            if (needs(d, block->version, block->index[0], apart, y)) {
                int code = poise_flow_read(task, &other, &view);
                if (code < 0) {
                    return code;
                }
                value =
                    poise_hash_u64(value * 3 + *(const uint64_t *)view.data);
            }
        }
    }
    if (d->slow) {
        poise_sleep_ns((uint64_t)(d->slow[poise_flow_node(task)] * 1e6));
    }
    uint64_t *out = poise_flow_make(task, sizeof *out);
    if (!out) {
        return -ENOMEM;
    }
    *out = value;
    return poise_flow_write(task, block, out, sizeof *out);
}

static bool dice_is_result(const struct poise_flow_address *block,
                           const struct poise_flow_chunk *file, void *arg)
{
    (void)arg;
    return block->version + 1 == file->versions.to;
}

/* Blocks of earlier versions that nobody needs are results, too. */
static int dice_output(const struct poise_flow_address *block, const void *data,
                       size_t len, void *arg)
{
    struct dice *d = arg;
    if (block->version + 1 == d->versions && len == 8) {
        memcpy(&d->got[block->index[0]], data, 8);
        d->results++;
    }
    return 0;
}

static void dice_init(struct dice *d, int64_t versions, int64_t reach,
                      bool uniform, enum poise_flow_gives gives)
{
    *d = (struct dice){
        .reach = reach,
        .uniform = uniform,
        .versions = versions,
        .file = {.name = "dice", .shape = {.dims = 1, .index = {{0, WIDE}}}},
        .job = {.file_count = 1,
                .app = {.depend = dice_depend,
                        .compute = dice_compute,
                        .is_result = dice_is_result,
                        .gives = gives,
                        .reach = reach,
                        .uniform = uniform}}};
    /* One version: it means nothing. */
    d->file.shape.versions.to = versions == 1 ? 0 : versions;
}

static int dice_run(struct dice *d, struct poise_flow_options *options,
                    struct poise_flow_stats *stats)
{
    d->job.files = &d->file;
    d->job.app.arg = d;
    d->results = d->strays = 0;
    options->output = dice_output;
    options->output_arg = d;
    return poise_flow_run(&d->job, options, stats);
}

/* The values, plainly. */
static void dice_expect(const struct dice *d, uint64_t out[WIDE])
{
    uint64_t *all = calloc((size_t)(d->versions * WIDE), sizeof *all);
    assert_non_null(all);
    for (int64_t b = 0; b < d->versions * WIDE; b++) {
        uint64_t value = poise_hash_u64((uint64_t)b);
        for (int64_t apart = 0; apart <= d->reach; apart++) {
            for (int64_t y = 0; y < WIDE; y++) {
                if (needs(d, b / WIDE, b % WIDE, apart, y)) {
                    value = poise_hash_u64(value * 3 +
                                           all[(b / WIDE - apart) * WIDE + y]);
                }
            }
        }
        all[b] = value;
    }
    memcpy(out, all + (d->versions - 1) * WIDE, WIDE * sizeof *out);
    free(all);
}

/* Whatever is given, and however it is run, the same comes out. */
static void test_derived(void **state)
{
    (void)state;
    static const struct poise_flow_options ways[] = {
        {.nodes = 0}, {.threads = 2}, {.nodes = 2}, {.nodes = 3, .check = 1}};
    for (int kind = 0; kind < 3 * 2 * 3; kind++) {
        struct dice d;
        uint64_t expected[WIDE];
        int64_t versions = kind % 3 == 0 ? 1 : kind % 3 == 1 ? 3 : 30;
        int64_t reach = kind % 3 == 0 ? 0 : 1 + kind % 2;
        dice_init(&d, versions, reach, kind / 3 % 2,
                  (enum poise_flow_gives)(kind / 6));
        dice_expect(&d, expected);
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            struct poise_flow_options options = ways[w];
            int code = dice_run(&d, &options, NULL);
            if (code < 0 || d.results != WIDE || d.strays > 0 ||
                memcmp(d.got, expected, sizeof expected) != 0) {
                fail_msg("kind %d, way %zu: %d %s, %u results, %u strays", kind,
                         w, code, code < 0 ? mix_error() : "", d.results,
                         d.strays);
            }
        }
    }
}

/* Nobody computes a block again, since nothing is freed that is needed. */
static void test_derived_frees(void **state)
{
    (void)state;
    for (int gives = 0; gives < 3; gives++) {
        struct dice d;
        struct poise_flow_options options = {.nodes = 2};
        struct poise_flow_stats stats = {0};
        dice_init(&d, 40, 2, false, (enum poise_flow_gives)gives);
        assert_int_equal(dice_run(&d, &options, &stats), 0);
        for (unsigned n = 0; n < stats.node_count; n++) {
            assert_int_equal(stats.nodes[n].redone, 0);
            assert_true(stats.nodes[n].freed > 0);
        }
        assert_int_equal(stats.blocks, 40 * WIDE);
        poise_flow_stats_free(&stats);
    }
}

/* ---- what is wrong ------------------------------------------------------ */

static int unknown(struct poise_flow_task *task,
                   const struct poise_flow_address *block,
                   const struct poise_flow_chunk *file,
                   enum poise_flow_direction direction,
                   struct poise_flow_list *out, void *arg)
{
    struct poise_flow_view view;
    (void)file;
    (void)direction;
    (void)out;
    (void)arg;
    assert_int_equal(poise_flow_exists(task, block), 0);
    assert_int_equal(poise_flow_node(task), 0);
    return poise_flow_read(task, block, &view) == -EAGAIN ? 0 : 1;
}

static void expect_error(struct dice *d, int wanted, const char *says,
                         double check)
{
    struct poise_flow_options options = {.check = check};
    int code = dice_run(d, &options, NULL);
    if (code != wanted || !strstr(mix_error(), says)) {
        fail_msg("%d, %s", code, mix_error());
    }
}

static void test_wrong(void **state)
{
    (void)state;
    struct dice d;
    dice_init(&d, 9, 2, false, POISE_FLOW_GIVES_BACKWARD);
    d.job.app.reach = 1;
    expect_error(&d, -ERANGE, "which is 2 versions away, and the job says", 0);
    dice_init(&d, 9, 1, false, POISE_FLOW_GIVES_FORWARD);
    d.job.app.depend = unknown;
    expect_error(&d, -ENOTSUP, "list is not known yet", 0);
    dice_init(&d, 9, 1, false, POISE_FLOW_GIVES_BOTH);
    d.job.app.patterns = &kinds[0].pattern;
    d.job.app.pattern_count = 1;
    expect_error(&d, -EINVAL, "patterns and a callback", 0);
    d.job.app.depend = NULL;
    d.job.app.patterns = &kinds[10].pattern; /* of a file that is not there */
    expect_error(&d, -EINVAL, "pattern 0 makes no sense", 0);
    d.job.app.pattern_count = 0;
    expect_error(&d, -EINVAL, "neither patterns nor a callback", 0);
    d.job.app.reach = -1;
    d.job.app.depend = dice_depend;
    d.job.app.gives = POISE_FLOW_GIVES_FORWARD;
    expect_error(&d, -EINVAL, "reach over -1 versions", 0);
}

static int reads_more(struct poise_flow_task *task,
                      const struct poise_flow_address *block,
                      const struct poise_flow_chunk *file, void *arg)
{
    const int64_t far[1] = {WIDE / 2};
    struct poise_flow_view view;
    int code = poise_flow_read_near(task, block, file, 1, far, true, &view);
    return code < 0 ? code : dice_compute(task, block, file, arg);
}

/* Who reads what is not on its list hears of it, and does not wait for ever. */
static void test_reads_more(void **state)
{
    (void)state;
    static const struct poise_flow_pattern around = {.kind = POISE_FLOW_CROSS,
                                                     .back = 1};
    struct dice d;
    dice_init(&d, 50, 0, false, POISE_FLOW_GIVES_BACKWARD);
    d.job.app.compute = reads_more;
    expect_error(&d, -EILSEQ, "which its list does not name", 0);
    assert_non_null(strstr(mix_error(), "it reads dice:"));
    d.job.app.depend = NULL;
    d.job.app.patterns = &around;
    d.job.app.pattern_count = 1;
    expect_error(&d, -EILSEQ, "which its list does not name", 0);
}

/* Lists that are not the same in each version: found, and both are named. */
static void test_not_uniform(void **state)
{
    (void)state;
    for (int gives = 0; gives < 3; gives++) {
        struct dice d;
        dice_init(&d, 9, 1, true, (enum poise_flow_gives)gives);
        d.lies = true;
        expect_error(&d, -EILSEQ, "are the same in every version", 1);
        assert_non_null(strstr(mix_error(), "'dice:"));
        assert_non_null(strstr(mix_error(), "list names dice:"));
    }
}

/* ---- stages ------------------------------------------------------------- */

/* Versions mean nothing to the program, and everything to the run. */
static void test_stages(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 5, 12, 40};
    for (size_t c = 0; c < 2 * sizeof counts / sizeof counts[0]; c++) {
        struct dice d;
        struct poise_flow_options options = {.nodes = (unsigned)(c % 3)};
        struct poise_flow_stats stats = {0};
        uint64_t expected[WIDE];
        dice_init(&d, 1, 0, false, (enum poise_flow_gives)(c % 2));
        d.file.stages = counts[c / 2];
        dice_expect(&d, expected);
        assert_int_equal(dice_run(&d, &options, &stats), 0);
        assert_int_equal(d.results, WIDE);
        assert_int_equal(d.strays, 0);
        assert_memory_equal(d.got, expected, sizeof expected);
        assert_int_equal(stats.blocks, WIDE);
        poise_flow_stats_free(&stats);
    }
}

/** A wavefront that counts the ways to each block. */
struct front {
    struct poise_flow_file file;
    uint64_t last;
    bool kills; /* node 1, in the middle */
};

static int front_compute(struct poise_flow_task *task,
                         const struct poise_flow_address *block,
                         const struct poise_flow_chunk *file, void *arg)
{
    static const int64_t ways[2][2] = {{-1, 0}, {0, -1}};
    uint64_t *out = poise_flow_make(task, sizeof *out);
    const struct front *front = arg;
    if (!out) {
        return -ENOMEM;
    }
    if (front->kills && poise_flow_node(task) == 1 &&
        block->index[0] + block->index[1] >= 15) {
        raise(SIGKILL);
    }
    *out = block->index[0] == 0 && block->index[1] == 0;
    for (int w = 0; w < 2; w++) {
        struct poise_flow_view view;
        int code =
            poise_flow_read_near(task, block, file, 0, ways[w], false, &view);
        if (code < 0) {
            return code;
        }
        *out += view.data ? *(const uint64_t *)view.data : 0;
    }
    if (!front->kills) {
        poise_sleep_ns(poise_flow_node(task) == 1 ? 20000000 : 100000);
    }
    return block->version == 0 ? poise_flow_write(task, block, out, sizeof *out)
                               : -EDOM;
}

static int front_output(const struct poise_flow_address *block,
                        const void *data, size_t len, void *arg)
{
    struct front *front = arg;
    if (len == 8 && block->index[0] == 15 && block->index[1] == 15) {
        memcpy(&front->last, data, 8);
    }
    return 0;
}

static const struct poise_flow_pattern front_needs = {.kind =
                                                          POISE_FLOW_WAVEFRONT};

static struct poise_flow_job front_job(struct front *front)
{
    return (struct poise_flow_job){&front->file,
                                   1,
                                   {.patterns = &front_needs,
                                    .pattern_count = 1,
                                    .compute = front_compute,
                                    .arg = front}};
}

/* Who dies within a version costs what came after the last line, which is one
 * of stages; the same comes out. */
static void test_death_within(void **state)
{
    (void)state;
    struct front front = {
        .file = {.name = "front",
                 .shape = {.dims = 2, .index = {{0, 16}, {0, 16}}},
                 .stages = 16},
        .kills = true};
    const struct poise_flow_job job = front_job(&front);
    struct poise_flow_options options = {.nodes = 3,
                                         .replicate = 1,
                                         .output = front_output,
                                         .output_arg = &front};
    struct poise_flow_stats stats = {0};
    assert_int_equal(poise_flow_run(&job, &options, &stats), 0);
    assert_int_equal(front.last, 155117520);
    assert_int_equal(stats.deaths, 1);
    poise_flow_stats_free(&stats);
}

/* Chunks of one version are made anew while it is computed: of what is left,
 * less goes to the node that is slow. */
static void test_adapt_within(void **state)
{
    (void)state;
    struct front front = {
        .file = {.name = "front",
                 .shape = {.dims = 2, .index = {{0, 16}, {0, 16}}},
                 .adapt = 2,
                 .stages = 16}};
    const struct poise_flow_job job = front_job(&front);
    struct poise_flow_options options = {.nodes = 3,
                                         .window = 1,
                                         .report_ns = 2000000,
                                         .output = front_output,
                                         .output_arg = &front};
    struct poise_flow_stats stats = {0};
    assert_int_equal(poise_flow_run(&job, &options, &stats), 0);
    assert_int_equal(front.last, 155117520); /* 30 over 15 */
    assert_true(stats.rechunkings > 0);
    assert_true(stats.nodes[1].blocks * 3 < 16 * 16);
    poise_flow_stats_free(&stats);
    front.file.adapt = -1;
    assert_int_equal(poise_flow_run(&job, &options, NULL), -EINVAL);
}

static int circle(struct poise_flow_task *task,
                  const struct poise_flow_address *block,
                  const struct poise_flow_chunk *file,
                  enum poise_flow_direction direction,
                  struct poise_flow_list *out, void *arg)
{
    int64_t by = direction == POISE_FLOW_BACKWARD ? -1 : 1;
    struct poise_flow_address next = *block;
    (void)task;
    (void)file;
    (void)arg;
    next.index[0] = (block->index[0] + by + WIDE) % WIDE;
    return poise_flow_list_add(out, &next) < 0 ? -ENOMEM : 1;
}

static void test_stages_wrong(void **state)
{
    (void)state;
    struct dice d;
    dice_init(&d, 1, 0, false, POISE_FLOW_GIVES_BACKWARD);
    d.file.stages = 3;
    d.job.app.depend = circle;
    expect_error(&d, -ELOOP, "needs dice[0]", 0);
    dice_init(&d, 9, 1, false, POISE_FLOW_GIVES_BACKWARD);
    d.file.stages = 3;
    expect_error(&d, -EINVAL, "one file of one version", 0);
    dice_init(&d, 1, 0, false, POISE_FLOW_GIVES_BACKWARD);
    d.file.stages = -3;
    expect_error(&d, -EINVAL, "one file of one version", 0);
}

/* ---- results ------------------------------------------------------------ */

static void test_collect(void **state)
{
    (void)state;
    uint64_t room[30] = {0}, value = 7;
    struct poise_flow_array array = {&board[0].shape, 8, room};
    struct poise_flow_address block = at(0, 3, 17);
    assert_int_equal(poise_flow_collect(&block, &value, 8, &array), 0);
    assert_int_equal(room[17], 7);
    assert_int_equal(poise_flow_collect(&block, &value, 4, &array), -EPROTO);
    assert_non_null(strstr(mix_error(), "4 bytes, not 8"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_patterns_twice),
        cmocka_unit_test(test_derived),
        cmocka_unit_test(test_derived_frees),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_reads_more),
        cmocka_unit_test(test_not_uniform),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_adapt_within),
        cmocka_unit_test(test_death_within),
        cmocka_unit_test(test_stages_wrong),
        cmocka_unit_test(test_collect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
