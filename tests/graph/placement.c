/* Room graph: domains of machines made up, and who gets which processors. */
#include "../temporary.h"
#include "graph/memory/internal.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[TEMPORARY_BYTES];

static void put(const char *name, const char *text)
{
    char path[TEMPORARY_MORE];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Two sockets, and a domain of memory alone between them. */
static int make_machine(void **state)
{
    char path[TEMPORARY_MORE];
    (void)state;
    assert_non_null(mkdtemp(temporary_name(folder, "place")));
    for (int node = 0; node < 3; node++) {
        snprintf(path, sizeof path, "%s/node%d", folder, node);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    put("online", "0-2\n");
    put("node0/cpulist", "0-3,8\n");
    put("node1/cpulist", "\n");
    put("node2/cpulist", "4-7\n");
    return 0;
}

static int remove_machine(void **state)
{
    char command[TEMPORARY_MORE];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static cpu_set_t set_of(const char *cpus)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (; *cpus; cpus++) {
        CPU_SET((size_t)(*cpus - '0'), &set);
    }
    return set;
}

static void assert_set(const cpu_set_t *received, const char *cpus)
{
    cpu_set_t want = set_of(cpus);
    assert_true(CPU_EQUAL(received, &want));
}

static void test_read(void **state)
{
    struct graph_domains domains;
    cpu_set_t all = set_of("012345678"), some = set_of("1256"),
              one = set_of("5");
    (void)state;
    graph_domains_read(folder, &all, &domains);
    assert_int_equal(domains.count, 2);
    assert_int_equal(domains.nodes[1], 2);
    assert_set(&domains.cpus[0], "01238");
    assert_set(&domains.cpus[1], "4567");
    /* Only what the launcher left to this process. */
    graph_domains_read(folder, &some, &domains);
    assert_int_equal(domains.count, 2);
    assert_set(&domains.cpus[0], "12");
    graph_domains_read(folder, &one, &domains);
    assert_int_equal(domains.count, 1);
    assert_int_equal(domains.nodes[0], 2);
    graph_domains_read("/no/such/folder", &some, &domains);
    assert_int_equal(domains.count, 1);
    assert_set(&domains.cpus[0], "1256");
}

static void assert_share(const struct graph_domains *domains, unsigned index,
                         unsigned count, const char *cpus)
{
    cpu_set_t set;
    graph_domains_share(domains, index, count, &set);
    assert_set(&set, cpus);
}

static void test_share(void **state)
{
    struct graph_domains domains;
    cpu_set_t all = set_of("01234567");
    (void)state;
    graph_domains_read(folder, &all, &domains);
    assert_share(&domains, 0, 1, "0123");
    assert_share(&domains, 0, 2, "0123");
    assert_share(&domains, 1, 2, "4567");
    assert_share(&domains, 0, 3, "01");
    assert_share(&domains, 1, 3, "4567");
    assert_share(&domains, 2, 3, "23");
    assert_share(&domains, 7, 8, "7");
    /* More processes than processors. */
    assert_share(&domains, 9, 10, "4567");
}

/* On this machine: what was bound stays within what was allowed. */
static void test_place(void **state)
{
    cpu_set_t before, after, both;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int domains = poise_graph_place(NULL, POISE_GRAPH_MAP_NONE);
    assert_true(domains >= 1);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    assert_int_equal(poise_graph_place(NULL, POISE_GRAPH_MAP_DOMAIN), domains);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    CPU_AND(&both, &before, &after);
    assert_true(CPU_EQUAL(&both, &after));
    assert_true(CPU_COUNT(&after) >= 1);
    int code = poise_graph_place(NULL, POISE_GRAPH_MAP_INTERLEAVE);
    assert_true(code >= 1 || code == -EPERM || code == -ENOSYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_place),
    };
    return cmocka_run_group_tests(tests, make_machine, remove_machine);
}
