/* Room flow: what a caller is told while a job runs. */
#include "common.h"
#include "flow/server/internal.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

/** What came. */
struct seen {
    unsigned calls, backwards, count;
    unsigned alive, deaths, strays;
    int64_t version, versions;
    uint64_t blocks, ns;
};

static void see(const struct poise_flow_watch *watch, void *arg)
{
    struct seen *seen = arg;
    uint64_t blocks = 0;
    int64_t low = INT64_MAX;
    seen->calls++;
    seen->backwards += watch->ns < seen->ns;
    seen->alive = 0;
    for (unsigned n = 0; n < watch->count; n++) {
        const struct poise_flow_watched *node = &watch->nodes[n];
        seen->alive += node->alive;
        seen->strays += !node->joined;
        blocks += node->blocks;
        low = node->alive && node->version < low ? node->version : low;
    }
    seen->strays += blocks != watch->blocks || low != watch->version;
    seen->ns = watch->ns;
    seen->count = watch->count;
    seen->deaths = watch->deaths;
    seen->version = watch->version;
    seen->versions = watch->versions;
    seen->blocks = watch->blocks;
}

/* Node 1 ends when it is in the middle; the last version waits until that was
 * told. */
static int die(struct mix *mix, struct poise_flow_task *task,
               const struct poise_flow_address *block, uint64_t *value)
{
    const atomic_bool *told = mix->spoil_arg;
    (void)value;
    if (poise_flow_node(task) == 1 && block->version == 15) {
        return raise(SIGKILL);
    }
    while (block->version == 29 && !atomic_load(told)) {
        poise_sleep_ns(1000000);
    }
    return 0;
}

/** Words of the map's. */
struct heard {
    struct poise_buf words;
    atomic_bool *told; /**< in memory that all nodes share */
};

static void hear(const char *words, void *arg)
{
    struct heard *heard = arg;
    poise_buf_puts(&heard->words, words);
    atomic_store(heard->told, true);
}

/* A node that a signal ended is told of, though it could say nothing itself. */
static void watch_run(bool death)
{
    struct heard heard = {.told = mmap(NULL, sizeof(atomic_bool),
                                       PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
    struct mix mix;
    struct seen seen = {0};
    struct poise_flow_stats stats = {0};
    struct poise_flow_options options = {.nodes = 3,
                                         .watch = see,
                                         .watch_arg = &seen,
                                         .watch_ns = 1,
                                         .report_ns = 1,
                                         .notice = hear,
                                         .notice_arg = &heard};
    mix_init(&mix, MIX_STENCIL, 2, 4, 30);
    mix.spoil = death ? die : NULL;
    mix.spoil_arg = heard.told;
    assert_true(heard.told != MAP_FAILED);
    assert_int_equal(mix_run(&mix, &options, &stats), 0);
    assert_true(seen.calls > 1);
    assert_int_equal(seen.backwards, 0);
    assert_int_equal(seen.strays, 0);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.deaths, death);
    assert_int_equal(seen.alive, death ? 2 : 3);
    assert_int_equal(seen.versions, 30);
    assert_int_equal(seen.version, 30);
    assert_true(seen.blocks >= (death ? 1 : 16 * 30));
    assert_string_equal(poise_buf_str(&heard.words),
                        death ? "node 1 was ended by signal 9 (Killed): others "
                                "compute its part"
                              : "");
    poise_buf_free(&heard.words);
    munmap(heard.told, sizeof *heard.told);
    poise_flow_stats_free(&stats);
    mix_free(&mix);
}

static void test_watch(void **state)
{
    (void)state;
    watch_run(false);
}

static void test_watch_death(void **state)
{
    (void)state;
    watch_run(true);
}

/* Alone a process is the one node that is looked at. */
static void test_watch_alone(void **state)
{
    (void)state;
    struct mix mix;
    struct seen seen = {0};
    struct poise_flow_options options = {
        .watch = see, .watch_arg = &seen, .watch_ns = 1};
    mix_init(&mix, MIX_STENCIL, 1, 4, 9);
    assert_int_equal(mix_run(&mix, &options, NULL), 0);
    assert_true(seen.calls > 0);
    assert_int_equal(seen.backwards + seen.strays + seen.deaths, 0);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.alive, 1);
    assert_int_equal(seen.versions, 9);
    mix_free(&mix);
}

/* Nothing is known of how long a block takes that is looked at for the first
 * time, though it be the very first one. */
static void test_first_is_not_long(void **state)
{
    (void)state;
    const struct poise_flow_options options = {.lost_ns = 1};
    struct flow_more more = {.key = {0, 0, 0}};
    struct flow_block block = {.more = &more};
    struct poise_flow_task task = {.block = &block};
    struct flow_processor processor = {.current = &task};
    struct flow_node node = {
        .options = &options, .threads = 1, .processors = &processor};
    struct flow_server server = {.node = &node, .woken = true};
    assert_int_equal(flow_watch_long(&server), 0);
    assert_null(server.map.queue.first);
    poise_sleep_ns(1000000);
    assert_int_equal(flow_watch_long(&server), 0);
    assert_non_null(server.map.queue.first);
    assert_int_equal(server.map.queue.first->head.kind, FLOW_LONG);
    flow_queue_clear(&server.map.queue, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_watch_death),
        cmocka_unit_test(test_watch_alone),
        cmocka_unit_test(test_first_is_not_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
