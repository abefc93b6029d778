/*
 * Which process holds which rank, and which processor runs which worker; the
 * latter on made-up machines.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "vrank/run/placement.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../temporary.h"

/* ---- shares ------------------------------------------------------------- */

static void test_shares(void **state)
{
    (void)state;
    int share[4];
    placement_shares(10, 4, NULL, share);
    assert_memory_equal(share, ((int[]){3, 3, 2, 2}), sizeof share);
    placement_shares(8, 4, (double[]){1, 1, 2, 4}, share);
    assert_memory_equal(share, ((int[]){1, 1, 2, 4}), sizeof share);
    /* Slow ones get their one rank all the same, if there are enough. */
    placement_shares(8, 4, (double[]){0.001, 1, 1, 1}, share);
    assert_int_equal(share[0], 1);
    placement_shares(2, 4, (double[]){1, 1, 1, 5}, share);
    assert_memory_equal(share, ((int[]){0, 0, 0, 2}), sizeof share);
}

static void test_speeds(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",    "1",    "1,2,3", "1,",  "1,x",
                                        "1,0", "-1,1", "1,nan", "1 2", "1,inf"};
    double speeds[2];
    assert_int_equal(placement_speeds("1,2.5", 2, speeds), 0);
    assert_true(speeds[0] == 1 && speeds[1] == 2.5);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(placement_speeds(wrong[i], 2, speeds), -EINVAL);
    }
}

static void test_simple(void **state)
{
    (void)state;
    static const int share[] = {3, 1, 2};
    int placed[6];
    placement_simple(POISE_VRANK_BLOCK, 6, 3, share, placed);
    assert_memory_equal(placed, ((int[]){0, 0, 0, 1, 2, 2}), sizeof placed);
    placement_simple(POISE_VRANK_CYCLIC, 6, 3, share, placed);
    assert_memory_equal(placed, ((int[]){0, 1, 2, 0, 2, 0}), sizeof placed);
}

/* ---- the graph ---------------------------------------------------------- */

enum { SIDE = 8, RANKS = SIDE * SIDE };

/* A square of ranks whose numbers are shuffled, each of which sends to its
 * neighbours. */
static struct poise_vrank_profile grid(struct poise_vrank_profile_edge *edges)
{
    struct poise_vrank_profile profile = {.count = RANKS, .edges = edges};
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            static const int steps[4][2] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};
            for (int s = 0; s < 4; s++) {
                int to_x = x + steps[s][0], to_y = y + steps[s][1];
                if (to_x < 0 || to_x >= SIDE || to_y < 0 || to_y >= SIDE) {
                    continue;
                }
                edges[profile.edge_count++] = (struct poise_vrank_profile_edge){
                    .from = (y * SIDE + x) * 27 % RANKS,
                    .to = (to_y * SIDE + to_x) * 27 % RANKS,
                    .messages = 1,
                    .bytes = 1000};
            }
        }
    }
    return profile;
}

static int cut(const struct poise_vrank_profile *profile, const int *placed)
{
    int edges = 0;
    for (int e = 0; e < profile->edge_count; e++) {
        edges += placed[profile->edges[e].from] != placed[profile->edges[e].to];
    }
    return edges;
}

static void test_graph(void **state)
{
    (void)state;
    struct poise_vrank_profile_edge edges[4 * RANKS];
    struct poise_vrank_profile profile = grid(edges);
    for (int processes = 2; processes <= 4; processes++) {
        int share[4], placed[RANKS], block[RANKS], held[4] = {0};
        placement_shares(RANKS, processes, NULL, share);
        assert_int_equal(placement_graph(&profile, processes, share, placed),
                         0);
        placement_simple(POISE_VRANK_BLOCK, RANKS, processes, share, block);
        for (int r = 0; r < RANKS; r++) {
            assert_in_range(placed[r], 0, processes - 1);
            held[placed[r]]++;
        }
        assert_memory_equal(held, share, (size_t)processes * sizeof *held);
        /* Straight lines would cut 2 * 8 edges each. */
        assert_in_range(cut(&profile, placed), 2 * SIDE,
                        4 * SIDE * (processes - 1));
        assert_true(cut(&profile, placed) * 2 < cut(&profile, block));
    }
}

/* Where consecutive ranks are best they stay together. */
static void test_graph_line(void **state)
{
    (void)state;
    struct poise_vrank_profile_edge edges[RANKS];
    struct poise_vrank_profile profile = {.count = RANKS, .edges = edges};
    int share[4], placed[RANKS];
    for (int r = 0; r + 1 < RANKS; r++) {
        edges[profile.edge_count++] = (struct poise_vrank_profile_edge){
            .from = r, .to = r + 1, .messages = 1, .bytes = 1};
    }
    placement_shares(RANKS, 4, NULL, share);
    assert_int_equal(placement_graph(&profile, 4, share, placed), 0);
    assert_int_equal(cut(&profile, placed), 3);
}

/* Ranks that no other sends to have a place as well. */
static void test_graph_empty(void **state)
{
    (void)state;
    struct poise_vrank_profile_edge self = {
        .from = 2, .to = 2, .messages = 5, .bytes = 9};
    struct poise_vrank_profile profile = {
        .count = 5, .edges = &self, .edge_count = 1};
    int placed[5], held[2] = {0};
    assert_int_equal(placement_graph(&profile, 2, ((int[]){3, 2}), placed), 0);
    for (int r = 0; r < 5; r++) {
        held[placed[r]]++;
    }
    assert_memory_equal(held, ((int[]){3, 2}), sizeof held);
    for (uint64_t k = 1; k <= 6; k++) {
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        assert_int_equal(placement_graph(&profile, 2, ((int[]){3, 2}), placed),
                         -ENOMEM);
    }
    poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
}

/* ---- processors --------------------------------------------------------- */

/* A machine whose processor i has the siblings lists[i]. */
static void make_machine(char *folder, const char *const *lists, int count)
{
    char path[TEMPORARY_MORE];
    assert_non_null(mkdtemp(temporary_name(folder, "cpus")));
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/cpu%d", folder, i);
        assert_int_equal(mkdir(path, 0700), 0);
        strcat(path, "/topology");
        assert_int_equal(mkdir(path, 0700), 0);
        strcat(path, "/thread_siblings_list");
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fprintf(file, "%s\n", lists[i]);
        fclose(file);
    }
}

static void remove_machine(const char *folder, int count)
{
    static const char *const parts[] = {"/topology/thread_siblings_list",
                                        "/topology", ""};
    char path[TEMPORARY_MORE];
    for (int i = 0; i < count; i++) {
        for (int p = 0; p < 3; p++) {
            snprintf(path, sizeof path, "%s/cpu%d%s", folder, i, parts[p]);
            remove(path);
        }
    }
    rmdir(folder);
}

static void test_cpus(void **state)
{
    (void)state;
    /* Four cores of two threads; siblings lie far from each other. */
    static const char *const lists[] = {"0,4", "1,5", "2,6", "3,7",
                                        "0,4", "1,5", "2,6", "3,7"};
    char folder[TEMPORARY_BYTES];
    cpu_set_t allowed;
    int cpus[8], threads = 0;
    make_machine(folder, lists, 8);
    CPU_ZERO(&allowed);
    for (int i = 0; i < 8; i++) {
        CPU_SET((size_t)i, &allowed);
    }
    assert_int_equal(placement_cpus(folder, &allowed, POISE_VRANK_SMT_ON, 0, 8,
                                    cpus, &threads),
                     0);
    assert_memory_equal(cpus, ((int[]){0, 4, 1, 5, 2, 6, 3, 7}), sizeof cpus);
    assert_int_equal(threads, 2);
    /* The second process of the machine; more workers than cores. */
    assert_int_equal(placement_cpus(folder, &allowed, POISE_VRANK_SMT_OFF, 2, 3,
                                    cpus, &threads),
                     0);
    assert_memory_equal(cpus, ((int[]){2, 3, 0}), 3 * sizeof *cpus);
    CPU_CLR(0, &allowed);
    CPU_CLR(1, &allowed);
    CPU_CLR(5, &allowed);
    assert_int_equal(placement_cpus(folder, &allowed, POISE_VRANK_SMT_OFF, 0, 3,
                                    cpus, &threads),
                     0);
    assert_memory_equal(cpus, ((int[]){4, 2, 3}), 3 * sizeof *cpus);
    /* A processor that is not described. */
    CPU_SET(9, &allowed);
    assert_int_equal(placement_cpus(folder, &allowed, POISE_VRANK_SMT_ON, 0, 1,
                                    cpus, &threads),
                     -ENOTSUP);
    CPU_ZERO(&allowed);
    assert_int_equal(placement_cpus(folder, &allowed, POISE_VRANK_SMT_ON, 0, 1,
                                    cpus, &threads),
                     -ENOTSUP);
    remove_machine(folder, 8);
}

static void test_cpus_alone(void **state)
{
    (void)state;
    static const char *const lists[] = {"0", "1"};
    char folder[TEMPORARY_BYTES];
    cpu_set_t allowed;
    int cpus[2], threads = 0;
    make_machine(folder, lists, 2);
    CPU_ZERO(&allowed);
    CPU_SET(0, &allowed);
    CPU_SET(1, &allowed);
    for (enum poise_vrank_smt smt = POISE_VRANK_SMT_ON;
         smt <= POISE_VRANK_SMT_OFF; smt++) {
        assert_int_equal(
            placement_cpus(folder, &allowed, smt, 0, 2, cpus, &threads), 0);
        assert_memory_equal(cpus, ((int[]){0, 1}), sizeof cpus);
        assert_int_equal(threads, 1);
    }
    remove_machine(folder, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),      cmocka_unit_test(test_speeds),
        cmocka_unit_test(test_simple),      cmocka_unit_test(test_graph),
        cmocka_unit_test(test_graph_empty), cmocka_unit_test(test_graph_line),
        cmocka_unit_test(test_cpus),        cmocka_unit_test(test_cpus_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
