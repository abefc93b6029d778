/* Room flow: its functions without any state: shapes, who has what, heaps. */
#include "common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "flow/map/internal.h"
#include "flow/node/state.h"

static void test_shapes(void **state)
{
    (void)state;
    struct poise_flow_chunk shape = {
        .dims = 3, .versions = {2, 9}, .index = {{1, 4}, {0, 5}, {7, 9}}};
    struct poise_flow_address a, b;
    assert_int_equal(flow_shape_check(&shape, "s"), 0);
    assert_int_equal(flow_shape_places(&shape), 30);
    for (uint64_t p = 0; p < 30; p++) {
        struct flow_key key = {3, 4, p};
        flow_shape_address(&shape, &key, &a);
        assert_true(flow_shape_holds(&shape, &a));
        assert_int_equal(flow_shape_place(&shape, &a), p);
        if (p > 0) {
            assert_memory_not_equal(&a, &b, sizeof a);
        }
        b = a;
    }
    a.index[2] = 9;
    assert_false(flow_shape_holds(&shape, &a));
    a = b;
    a.version = 1;
    assert_false(flow_shape_holds(&shape, &a));
    shape.index[1].to = 0;
    assert_int_equal(flow_shape_check(&shape, "s"), -EINVAL);
    shape.index[1].to = INT64_MAX;
    assert_int_equal(flow_shape_check(&shape, "s"), -EINVAL);
    shape.dims = 0;
    assert_int_equal(flow_shape_check(&shape, "s"), -EINVAL);
}

static void test_counts(void **state)
{
    (void)state;
    double weights[4] = {1, 0.25, 1, 0};
    uint64_t counts[4];
    flow_partition_counts(weights, 4, 90, counts);
    assert_int_equal(counts[0], 40);
    assert_int_equal(counts[1], 10);
    assert_int_equal(counts[2], 40);
    assert_int_equal(counts[3], 0);
    /* 10 blocks: the slow one gets one, since two would take it 8. */
    flow_partition_counts(weights, 4, 10, counts);
    assert_int_equal(counts[0] + counts[1] + counts[2], 10);
    assert_true(counts[1] <= 2 && counts[0] >= 4 && counts[2] >= 4);
    double none[2] = {0, 0};
    flow_partition_counts(none, 2, 10, counts);
    assert_int_equal(counts[0] + counts[1], 0);
}

/* Keepers are members, others, and no two of them the same; where there are six
 * members or more, none is beside the owner, nor beside the other one. */
static void test_keepers(void **state)
{
    (void)state;
    enum { MOST = 9 };
    for (unsigned set = 1; set < 1U << MOST; set++) {
        struct flow_kept kept[MOST] = {0};
        unsigned ring[MOST], rank[MOST] = {0}, count = 0;
        for (unsigned n = 0; n < MOST; n++) {
            kept[n].member = set >> n & 1;
            rank[n] = count;
            ring[count] = n;
            count += kept[n].member;
        }
        assert_int_equal(flow_partition_keepers(kept, NULL, MOST), 0);
        for (unsigned r = 0; r < count; r++) {
            const uint16_t *out = kept[ring[r]].by;
            unsigned found = count > 2 ? 2 : count - 1;
            for (unsigned i = 0; i < FLOW_COPIES; i++) {
                assert_int_equal(out[i] != FLOW_NOBODY, i < found);
            }
            for (unsigned i = 0; i < found; i++) {
                assert_true(kept[out[i]].member && out[i] != ring[r]);
                unsigned apart = (rank[out[i]] + count - r) % count;
                assert_true(count < 6 || (apart > 1 && apart < count - 1));
            }
            if (found == 2) {
                unsigned apart = (rank[out[1]] + count - rank[out[0]]) % count;
                assert_true(apart > 0);
                assert_true(count < 6 || (apart > 1 && apart < count - 1));
            }
        }
    }
}

/* On hosts of any sizes: with two hosts no copy is on the owner's, with three
 * neither are both copies on one; so all of a host may die, and of three any
 * one. */
static void test_keepers_on_hosts(void **state)
{
    (void)state;
    enum { MOST = 24 };
    struct poise_rng rng;
    poise_rng_seed(&rng, 20);
    for (unsigned round = 0; round < 3000; round++) {
        unsigned nodes = 1 + (unsigned)poise_rng_below(&rng, MOST);
        unsigned hosts = 1 + (unsigned)poise_rng_below(&rng, 5), seen = 0;
        struct flow_kept kept[MOST] = {0};
        uint32_t host[MOST];
        for (unsigned n = 0; n < nodes; n++) {
            host[n] = (uint32_t)poise_rng_below(&rng, hosts);
            if (n > 0 && poise_rng_below(&rng, 3) > 0) {
                host[n] = host[n - 1];
            }
            kept[n].member = poise_rng_below(&rng, 8) > 0;
            seen |= kept[n].member ? 1U << host[n] : 0;
        }
        assert_int_equal(flow_partition_keepers(kept, host, nodes), 0);
        int there = __builtin_popcount(seen);
        for (unsigned n = 0; n < nodes; n++) {
            const uint16_t *by = kept[n].by;
            for (unsigned i = 0; i < FLOW_COPIES && kept[n].member; i++) {
                if (by[i] == FLOW_NOBODY) {
                    continue;
                }
                assert_true(by[i] != n && kept[by[i]].member);
                assert_true(i == 0 || by[i] != by[0]);
                /* The second one is beside it where there is one other. */
                bool only = i > 0 && there == 2 && host[by[i]] == host[n];
                for (unsigned m = 0; only && m < nodes; m++) {
                    only = !kept[m].member || host[m] == host[n] || m == by[0];
                }
                assert_true(there < 2 || only || host[by[i]] != host[n]);
                assert_true(i == 0 || there < 3 || host[by[i]] != host[by[0]]);
            }
        }
    }
}

/* Each region has the number of blocks that it was given, to the block. */
static void test_bisection(void **state)
{
    (void)state;
    struct poise_flow_chunk shape = {
        .dims = 2, .versions = {0, 1}, .index = {{0, 13}, {0, 17}}};
    uint16_t owner[13 * 17];
    uint64_t counts[5] = {100, 1, 60, 40, 20}, seen[5] = {0};
    assert_int_equal(flow_partition_bisect(&shape, counts, 5, NULL, owner), 0);
    for (int p = 0; p < 13 * 17; p++) {
        assert_true(owner[p] < 5);
        seen[owner[p]]++;
    }
    assert_memory_equal(seen, counts, sizeof seen);

    /* Heavy places make for small shares of equal weight. */
    double weight[13 * 17], sum[4] = {0};
    bool in[4] = {true, true, false, true};
    for (int p = 0; p < 13 * 17; p++) {
        weight[p] = p % 17 < 5 ? 4 : 1;
    }
    assert_int_equal(flow_partition_weighted(&shape, weight, in, 4, owner), 0);
    for (int p = 0; p < 13 * 17; p++) {
        sum[owner[p]] += weight[p];
    }
    assert_true(sum[2] == 0);
    for (int n = 0; n < 4; n++) {
        assert_true(n == 2 || (sum[n] > 130 && sum[n] < 148));
    }
}

/* Of any versions: numbers of 64 bits. */
static void test_heap(void **state)
{
    (void)state;
    static const int64_t from[] = {0, (INT64_C(1) << 32) - 5, INT64_MAX - 10};
    for (unsigned f = 0; f < 3; f++) {
        struct poise_flow_task tasks[100] = {0};
        struct flow_heap heap = {0};
        const struct poise_flow_task *last = NULL;
        for (unsigned i = 0; i < 100; i++) {
            tasks[i].address.version =
                from[f] + (int64_t)(poise_hash_u64(i + 1) % 10);
            tasks[i].preference = (uint32_t)(poise_hash_u64(i) % 50);
            assert_int_equal(flow_heap_push(&heap, &tasks[i]), 0);
        }
        for (unsigned i = 0; i < 100; i++) {
            const struct poise_flow_task *task = flow_heap_pop(&heap);
            assert_true(!last ||
                        task->address.version > last->address.version ||
                        (task->address.version == last->address.version &&
                         task->preference >= last->preference));
            last = task;
        }
        assert_null(flow_heap_pop(&heap));
        free(heap.items);
    }
}

/* Each member has one who talks for it, before it, and few levels above it. */
static void test_tree(void **state)
{
    (void)state;
    enum { MEMBERS = 10000 };
    static unsigned children[MEMBERS], level[MEMBERS];
    unsigned first = 0, deepest = 0;
    for (unsigned p = 0; p < MEMBERS; p++) {
        int64_t parent = flow_tree_parent(p);
        first += parent < 0;
        if (parent >= 0) {
            assert_true(parent < p);
            assert_true(p >= flow_tree_children((uint64_t)parent));
            assert_true(p < flow_tree_children((uint64_t)parent) + FLOW_FAN);
            assert_true(++children[parent] <= FLOW_FAN);
            level[p] = level[parent] + 1;
        }
        deepest = level[p] > deepest ? level[p] : deepest;
    }
    assert_int_equal(first, FLOW_FAN);
    assert_int_equal(deepest, 3); /* 16 + 256 + 4096 are fewer */
}

/* What is passed on comes out as it was put; what is cut short, or made up, is
 * no entry, and nothing is read beyond it. */
static void test_entries(void **state)
{
    (void)state;
    const uint64_t words[] = {0,
                              1,
                              127,
                              128,
                              UINT64_MAX,
                              INT64_MAX,
                              (uint64_t)INT64_MIN,
                              (uint64_t)-1000};
    struct poise_buf all = {0}, got = {0};
    uint64_t node = 0;
    assert_int_equal(flow_entry_put(&all, 3, words, sizeof words), 0);
    size_t one = all.len;
    assert_int_equal(flow_entry_put(&all, 70000, NULL, 0), 0);
    const char *at = all.data, *end = at + all.len;
    assert_int_equal(flow_entry_get(&at, end, &node, &got), 1);
    assert_int_equal(node, 3);
    assert_int_equal(got.len, sizeof words);
    assert_memory_equal(got.data, words, sizeof words);
    assert_int_equal(flow_entry_get(&at, end, &node, &got), 1);
    assert_int_equal(node, 70000);
    assert_int_equal(got.len, 0);
    assert_int_equal(flow_entry_get(&at, end, &node, &got), 0);
    for (size_t len = 1; len < one; len++) {
        char *part = malloc(len);
        memcpy(part, all.data, len);
        at = part;
        assert_int_equal(flow_entry_get(&at, part + len, &node, &got),
                         -EBADMSG);
        free(part);
    }
    char endless[12];
    memset(endless, 0xff, sizeof endless);
    at = endless;
    assert_int_equal(flow_entry_get(&at, endless + sizeof endless, &node, &got),
                     -EBADMSG);
    poise_buf_free(&all);
    poise_buf_free(&got);
}

/* The map of a job of so many versions and ADAPT_NODES places, of which all but
 * the last node have one, and the lows that they reported. Returns up to where
 * versions are given out when it has looked whether there are to be more. */
#define ADAPT_NODES 3
static int64_t adapt_after(int64_t adapt, int64_t given,
                           const int64_t low[ADAPT_NODES])
{
    struct poise_flow_file file = {
        .name = "f",
        .shape = {.dims = 1, .versions = {0, 100}, .index = {{0, 3}}},
        .adapt = adapt};
    const struct poise_flow_job job = {.files = &file, .file_count = 1};
    const struct poise_flow_options options = {.nodes = ADAPT_NODES};
    struct flow_file_report report[ADAPT_NODES] = {{0}};
    double rate[ADAPT_NODES] = {1, 1, 1};
    struct map_node nodes[ADAPT_NODES] = {{0}};
    struct map_file files = {0};
    struct flow_tally tally[ADAPT_NODES] = {{0}};
    struct map map = {.job = &job,
                      .options = &options,
                      .nodes = nodes,
                      .count = ADAPT_NODES,
                      .files = &files,
                      .tally = tally,
                      .log = -1};
    for (unsigned n = 0; n < ADAPT_NODES; n++) {
        report[n].low = low[n];
        nodes[n] = (struct map_node){
            .alive = true, .files = &report[n], .rate = &rate[n]};
    }
    uint16_t *owner = calloc(3, sizeof *owner);
    owner[1] = owner[2] = 1;
    assert_int_equal(map_plan_keep(&map, 0, given - adapt, given, owner), 0);
    assert_int_equal(map_adapt(&map), 0);
    int64_t to = files.to;
    for (unsigned p = 0; p < files.plan_count; p++) {
        free(files.plans[p].owner);
    }
    free(files.plans);
    return to;
}

/* Versions are given out when somebody comes near the end of those that were,
 * not before: later ones are to follow what is measured until then. */
static void test_adapt(void **state)
{
    (void)state;
    assert_int_equal(adapt_after(4, 8, (int64_t[]){5, 4, 4}), 8);
    assert_int_equal(adapt_after(4, 8, (int64_t[]){6, 4, 4}), 12);
    assert_int_equal(adapt_after(1, 8, (int64_t[]){6, 5, 5}), 8);
    assert_int_equal(adapt_after(1, 8, (int64_t[]){7, 5, 5}), 9);
    /* Who has no part is beyond all that was given out. */
    assert_int_equal(adapt_after(4, 8, (int64_t[]){5, 4, 8}), 8);
    assert_int_equal(adapt_after(4, 8, (int64_t[]){8, 4, 8}), 12);
}

/* Who came and did not say who it is yet has time for that: as long as a
 * process stands still, with all others or alone, nobody's time passes. */
static void test_stood_still(void **state)
{
    struct flow_link *links = poise_alloc(1, sizeof *links);
    int fds[2];
    (void)state;
    assert_non_null(links);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    links->fd = fds[0];
    flow_links_tidy(&links);
    for (unsigned i = 0; i < FLOW_AWAKE_LOOKS; i++) {
        assert_non_null(links);
        links->strange.looked_ns -= 10 * FLOW_STRANGER_NS;
        flow_links_tidy(&links);
    }
    /* But whoever looks that often has listened: it is over for one that is
     * silent. */
    while (links) {
        links->strange.looked_ns -= FLOW_STRANGER_NS;
        flow_links_tidy(&links);
    }
    char byte;
    assert_int_equal(recv(fds[1], &byte, 1, 0), 0); /* it was closed */
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stood_still),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_adapt),
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_keepers),
        cmocka_unit_test(test_keepers_on_hosts),
        cmocka_unit_test(test_bisection),
        cmocka_unit_test(test_heap),
    };
    return cmocka_run_group_tests_name("flow_pure", tests, NULL, NULL);
}
