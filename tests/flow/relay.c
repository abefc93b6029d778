/* Room flow: nodes that others talk for. */
#include "../slowness.h"
#include "common.h"
#include "flow/link/link.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
/** Whatever happens, a test ends: far beyond what a slow machine needs. */
#define ENDS_AFTER_S 200

static int spoil_inner(struct mix *mix, struct poise_flow_task *task,
                       const struct poise_flow_address *block, uint64_t *value)
{
    const int *how = mix->spoil_arg;
    (void)value;
    if (poise_flow_node(task) == 0 && block->version == 10) {
        raise(*how);
    }
    return 0;
}

/* Node 0 talks for some of the others: they are heard without it, though it
 * does not even hang up. A machine that stalls may lose others for so short a
 * time; for a longer one it is this one alone. */
static void test_inner(void **state)
{
    (void)state;
    for (int kill = 0; kill < 2; kill++) {
        int how = kill ? SIGKILL : SIGSTOP;
        unsigned deaths = 0;
        for (uint64_t lost_ns = 400 * MS; lost_ns <= 40000 * MS && deaths != 1;
             lost_ns *= 10) {
            struct mix mix;
            struct poise_flow_stats stats = {0};
            struct poise_flow_options options = {
                .nodes = FLOW_FAN + 4, .report_ns = 5 * MS, .lost_ns = lost_ns};
            mix_init(&mix, MIX_STENCIL, 1, FLOW_FAN + 4, 20);
            mix.spoil = spoil_inner;
            mix.spoil_arg = &how;
            int code = mix_run(&mix, &options, &stats);
            deaths = code == 0 ? stats.deaths : 0;
            assert_true(code == 0 || code == -EPIPE);
            poise_flow_stats_free(&stats);
            mix_free(&mix);
        }
        assert_int_equal(deaths, 1);
    }
}

/** Of the last place: it takes far longer to the map than a report. */
#define LONG_BYTES ((size_t)32 << 20)

static int long_compute(struct poise_flow_task *task,
                        const struct poise_flow_address *block,
                        const struct poise_flow_chunk *file, void *arg)
{
    (void)arg;
    bool last = block->index[0] == file->index[0].to - 1;
    size_t len = last ? LONG_BYTES : 1;
    char *data = poise_flow_make(task, len);
    if (!data) {
        return -ENOMEM;
    }
    memset(data, 1 + (int)block->index[0], len);
    poise_sleep_ns(last ? 100 * MS : 0); /* behind its first report */
    return poise_flow_write(task, block, data, len);
}

static int long_output(const struct poise_flow_address *block, const void *data,
                       size_t len, void *arg)
{
    const char *bytes = data;
    int *came = arg;
    *came += bytes[0] == 1 + block->index[0] && bytes[len - 1] == bytes[0];
    return 0;
}

/* That a node is done comes by another one, and before its result: which is
 * awaited. */
static void test_done_first(void **state)
{
    (void)state;
    int came = 0;
    struct poise_flow_file file = {
        .name = "long",
        .shape = {.dims = 1, .versions = {0, 1}, .index = {{0, FLOW_FAN + 1}}}};
    const struct poise_flow_pattern none = {.kind = POISE_FLOW_CROSS,
                                            .back = 1};
    struct poise_flow_job job = {.files = &file,
                                 .file_count = 1,
                                 .app = {.compute = long_compute,
                                         .patterns = &none,
                                         .pattern_count = 1}};
    struct poise_flow_options options = {.nodes = FLOW_FAN + 1,
                                         .report_ns = 5 * MS,
                                         .lost_ns = 60000 * MS,
                                         .output = long_output,
                                         .output_arg = &came};
    assert_int_equal(poise_flow_run(&job, &options, NULL), 0);
    assert_int_equal(came, FLOW_FAN + 1);
}

static int limit(void **state)
{
    (void)state;
    alarm(slowness_s(ENDS_AFTER_S));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_inner, limit),
        cmocka_unit_test_setup(test_done_first, limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
