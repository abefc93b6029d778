/* Where ranks are: synthetic and measured layouts, distances, parts of worlds.
 */
#include "../temporary.h"
#include "comm/internal.h"

#include "../ranks.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const struct poise_local_options rough = {
    .delay_max_ns = 200000, .reorder = true, .seed = 7};

static void check_placements(const struct comm_layout *layout, int size,
                             const char *expected)
{
    struct poise_buf text = {0};
    for (int r = 0; r < size; r++) {
        poise_buf_printf(&text, "%s%d.%d.%d", r ? " " : "",
                         layout->placements[r].site, layout->placements[r].node,
                         layout->placements[r].numa);
    }
    assert_string_equal(poise_buf_str(&text), expected);
    poise_buf_free(&text);
}

static void test_synthetic(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int size;
        const char *placements;
    } cases[] = {
        {"1x1x1", 3, "0.0.0 0.0.0 0.0.0"},
        {"2x2x2", 7, "0.0.0 0.0.1 0.1.2 0.1.3 1.2.4 1.2.5 1.3.6"},
        {"2x2x2", 8, "0.0.0 0.0.1 0.1.2 0.1.3 1.2.4 1.2.5 1.3.6 1.3.7"},
        {"2x2x2", 3, "0.0.0 0.1.1 1.2.2"},
        {"3x1x1", 5, "0.0.0 0.0.0 1.1.1 1.1.1 2.2.2"},
        {"1x1x4", 2, "0.0.0 0.0.1"},
        {"65536x65536x65536", 2, "0.0.0 1.1.1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct comm_layout layout;
        assert_int_equal(
            comm_layout_synthetic(cases[i].text, cases[i].size, &layout), 0);
        check_placements(&layout, cases[i].size, cases[i].placements);
        free(layout.placements);
    }
}

static void test_synthetic_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "2",
                                      "2x2",
                                      "2x2x2x2",
                                      "0x1x1",
                                      "-1x1x1",
                                      "ax1x1",
                                      "1x1x1:",
                                      "1x1x1:1us",
                                      "1x1x1:0,0,0",
                                      "1x1x1:0,0,0,x",
                                      "1x1x1:0,0,0,0,0",
                                      "65537x1x1",
                                      "1x1x 1",
                                      "1:1x1",
                                      "1x1x1:0,0,0,",
                                      "1xx1x1:0,0",
                                      "x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct comm_layout layout;
        if (comm_layout_synthetic(bad[i], 4, &layout) != -EINVAL) {
            fail_msg("'%s' was taken", bad[i]);
        }
        assert_string_equal(poise_error_last()->what, bad[i]);
    }
    struct poise_world *world;
    struct poise_local_options opts = {.topology = "nonsense"};
    assert_int_equal(poise_world_create_local(1, &opts, &world), -EINVAL);
}

static void test_costs(void **state)
{
    (void)state;
    struct comm_layout layout;
    assert_int_equal(comm_layout_synthetic("1x2x3:0,1us,20us,10ms", 6, &layout),
                     0);
    assert_int_equal(layout.cost_ns[POISE_LEVEL_NUMA], 0);
    assert_int_equal(layout.cost_ns[POISE_LEVEL_NODE], 1000);
    assert_int_equal(layout.cost_ns[POISE_LEVEL_SITE], 20000);
    assert_int_equal(layout.cost_ns[POISE_LEVEL_WORLD], 10000000);
    free(layout.placements);
}

/* Places as real jobs give them: hosts dealt out in turn, a node that is only
 * partly filled, domains in any order, two sites that use the same names. */
static void test_measured(void **state)
{
    (void)state;
    static const struct {
        char site[4], node[4];
        int numa;
    } job[] = {{"", "n7", 1},  {"", "n2", 0}, {"", "n7", 0},  {"", "n2", 0},
               {"b", "n7", 1}, {"", "n7", 1}, {"b", "n9", 3}, {"", "n2", 1}};
    struct comm_place places[8];
    for (int i = 0; i < 8; i++) {
        places[i] = (struct comm_place){.site = (char *)job[i].site,
                                        .node = (char *)job[i].node,
                                        .numa = job[i].numa};
    }
    struct comm_layout layout;
    assert_int_equal(comm_layout_measured(places, 8, &layout), 0);
    check_placements(&layout, 8,
                     "0.0.0 0.1.1 0.0.2 0.1.1 1.2.3 0.0.0 1.3.4 0.1.5");
    struct poise_buf packed = {0};
    struct comm_layout copy;
    assert_int_equal(comm_layout_pack(&layout, 8, &packed), 0);
    struct poise_reader reader = poise_reader_of(packed.data, packed.len - 1);
    assert_int_equal(comm_layout_unpack(&reader, 8, &copy), -EBADMSG);
    reader = poise_reader_of(packed.data, packed.len);
    assert_int_equal(comm_layout_unpack(&reader, 8, &copy), 0);
    check_placements(&copy, 8,
                     "0.0.0 0.1.1 0.0.2 0.1.1 1.2.3 0.0.0 1.3.4 0.1.5");
    free(copy.placements);
    poise_buf_free(&packed);

    struct comm_placements placements;
    assert_int_equal(comm_placements_create(&layout, 5, 8, &placements), 0);
    static const int peers[] = {0, 2, 7, 1, 3, 6, 4};
    static const int first[] = {0, 1, 2, 5, 7};
    assert_memory_equal(placements.peers, peers, sizeof peers);
    assert_memory_equal(placements.first, first, sizeof first);
    static const int node[] = {0, 2, 5};
    assert_int_equal(placements.group_sizes[POISE_LEVEL_NODE], 3);
    assert_memory_equal(placements.groups[POISE_LEVEL_NODE], node, sizeof node);
    assert_false(placements.timed);
    comm_placements_free(&placements);
}

/* On any layout: peers are everybody else once, nearest first, and over all
 * ranks nobody is first in a level's list more often than others. */
static void test_peers(void **state)
{
    (void)state;
    struct poise_world *worlds[12];
    struct poise_local_options opts = {.topology = "2x3x2"};
    int asked_first[12] = {0};
    assert_int_equal(poise_world_create_local(12, &opts, worlds), 0);
    for (int r = 0; r < 12; r++) {
        struct poise_peers peers = poise_world_peers(worlds[r]);
        bool seen[12] = {false};
        assert_int_equal(peers.first[POISE_LEVELS], 11);
        for (int level = 0; level < POISE_LEVELS; level++) {
            for (int i = peers.first[level]; i < peers.first[level + 1]; i++) {
                int peer = peers.ranks[i];
                assert_int_equal(poise_world_distance(worlds[r], r, peer),
                                 level);
                assert_false(seen[peer] || peer == r);
                seen[peer] = true;
            }
        }
        asked_first[peers.ranks[peers.first[POISE_LEVEL_NODE]]]++;
        assert_int_equal(poise_world_is_root(worlds[r], POISE_LEVEL_SITE),
                         r % 6 == 0);
    }
    for (int r = 0; r < 12; r++) {
        assert_int_equal(asked_first[r], 1);
        poise_world_destroy(worlds[r]);
    }
}

static int split_rank(struct poise_world *world, void *arg)
{
    (void)arg;
    int rank = poise_world_rank(world);
    for (int level = 0; level < POISE_LEVELS; level++) {
        struct poise_world *part, *again;
        const int *ranks;
        int count = poise_world_group(world, level, &ranks);
        EXPECT(poise_world_split(world, level, &part) == 0);
        EXPECT(poise_world_size(part) == count);
        EXPECT(ranks[poise_world_rank(part)] == rank);
        EXPECT(poise_world_placement(part, 0).site == 0);
        uint64_t sum = (uint64_t)rank, expected = 0;
        for (int i = 0; i < count; i++) {
            expected += (uint64_t)ranks[i];
        }
        EXPECT(poise_world_reduce(part, POISE_SUM, &sum, 1) == 0);
        EXPECT(sum == expected);
        /* Distances are those of the whole. */
        EXPECT(poise_world_distance(part, 0, count - 1) ==
               poise_world_distance(world, ranks[0], ranks[count - 1]));
        EXPECT(poise_world_split(part, POISE_LEVEL_NUMA, &again) == 0);
        EXPECT(poise_world_barrier(again) == 0);
        poise_world_destroy(again);
        poise_world_destroy(part);
    }
    return 0;
}

static void test_split(void **state)
{
    (void)state;
    struct poise_local_options opts = rough;
    opts.topology = "2x2x2";
    run_clean(7, &opts, split_rank, NULL);
    opts.topology = NULL;
    run_clean(3, &opts, split_rank, NULL);
}

static void test_sites(void **state)
{
    (void)state;
    static const char lines[] = "# hosts and their sites\n"
                                "login  north # the front end\n"
                                "\n"
                                "n[0-4]*\tsouth\r\n"
                                "lonely\n"
                                "*.far.org east\n";
    static const char *const cases[][2] = {
        {"login", "north"}, {"login.here.org", "north"},
        {"n17", "south"},   {"n7", NULL},
        {"lonely", NULL},   {"x.far.org", "east"},
        {"far.org", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[sizeof lines];
        memcpy(text, lines, sizeof lines);
        const char *site = comm_site_of(text, cases[i][0]);
        assert_true((site == NULL) == (cases[i][1] == NULL));
        if (site) {
            assert_string_equal(site, cases[i][1]);
        }
    }
}

static void test_place(void **state)
{
    (void)state;
    struct comm_place place;
    char path[TEMPORARY_BYTES];
    assert_int_equal(comm_place_find(NULL, &place), 0);
    assert_string_equal(place.site, "");
    assert_true(strlen(place.node) > 0);
    assert_true(place.numa >= 0);
    comm_place_free(&place);

    int fd = mkstemp(temporary_name(path, "comm"));
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "* here\n", 7), 7);
    assert_int_equal(comm_place_find(path, &place), 0);
    assert_string_equal(place.site, "here");
    comm_place_free(&place);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(comm_place_find(path, &place), -EINVAL);
    assert_string_equal(poise_error_last()->what, path);
    /* Whatever is wrong in it, its line is named, also where another fits. */
    static const struct {
        const char *text;
        size_t len;
    } wrong[] = {{"* here\n# two\nlonely\n", 20},
                 {"\n\n* here there\n* here\n", 22},
                 {"* here\n\n* he\0re\n", 16}};
    char third[TEMPORARY_BYTES + 8];
    snprintf(third, sizeof third, "%s:3", path);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, wrong[i].text, wrong[i].len, 0),
                         (ssize_t)wrong[i].len);
        assert_int_equal(comm_place_find(path, &place), -EINVAL);
        assert_string_equal(poise_error_last()->what, third);
    }
    close(fd);
    unlink(path);
    assert_int_equal(comm_place_find(path, &place), -ENOENT);
    assert_int_equal(comm_place_find("/dev/zero", &place), -EFBIG);
}

/* A machine of as many domains as this one has processors, by hwloc's own
 * means: where the thread is bound to decides, or where it runs. */
/* A process with process ids of its own shares no memory with this one, so it
 * sits on another node. Where namespaces are closed there is nothing to see. */
static void test_containers_are_nodes(void **state)
{
    (void)state;
    struct comm_place here;
    assert_int_equal(comm_place_find(NULL, &here), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (unshare(CLONE_NEWPID) < 0 &&
            unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0) {
            _exit(0);
        }
        struct comm_place there;
        int status = 1;
        pid_t inner = fork();
        if (inner == 0) {
            _exit(comm_place_find(NULL, &there) < 0 ||
                  strcmp(here.node, there.node) == 0);
        }
        _exit(inner < 0 || waitpid(inner, &status, 0) != inner || status != 0);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    comm_place_free(&here);
}

static void test_numa(void **state)
{
    (void)state;
    cpu_set_t all, one;
    int (*here)(void) = NULL;
    struct poise_buf why = {0};
    void *module = comm_module_open("poise-numa.so", &why);
    if (!module) {
        fail_msg("%s", poise_buf_str(&why));
    }
    *(void **)&here = dlsym(module, "poise_numa_here");
    assert_non_null(here);
    assert_int_equal(setenv("HWLOC_SYNTHETIC", "numa:64 pu:1", 1), 0);
    assert_int_equal(setenv("HWLOC_THISSYSTEM", "1", 1), 0);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int cpu = 0; cpu < 64; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
            assert_int_equal(here(), cpu);
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    int anywhere = here();
    assert_true(anywhere >= 0 || !CPU_ISSET(0, &all));
    unsetenv("HWLOC_SYNTHETIC");
    unsetenv("HWLOC_THISSYSTEM");
    assert_true(here() >= 0);
    poise_buf_free(&why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_synthetic_refuses),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_measured),
        cmocka_unit_test(test_peers),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_sites),
        cmocka_unit_test(test_place),
        cmocka_unit_test(test_containers_are_nodes),
        cmocka_unit_test(test_numa),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
