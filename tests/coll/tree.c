/*
 * Trees: what the generators make, files read and written, and lines that are
 * wrong.
 */
#include <poise/coll.h>

#include "../temporary.h"
#include "coll/tree/internal.h"

#include "../ranks.h"

#include <errno.h>
#include <unistd.h>

static const char *const hosts[] = {"a", "a", "b", "b", "b", "c", "c", "d"};

static int parse(const char *text, struct poise_coll_tree **out)
{
    return coll_tree_parse(text, strlen(text), "file", hosts, 8, out);
}

static void expect_parents(const struct poise_coll_tree *tree,
                           const char *parents)
{
    struct poise_buf found = {0};
    for (int rank = 0; rank < tree->size; rank++) {
        poise_buf_printf(&found, "%s%d", rank ? " " : "",
                         poise_coll_tree_parent(tree, rank));
    }
    assert_string_equal(poise_buf_str(&found), parents);
    poise_buf_free(&found);
}

static void reads(const char *text, const char *parents)
{
    struct poise_coll_tree *tree, *again;
    struct poise_buf out = {0};
    assert_int_equal(parse(text, &tree), 0);
    expect_parents(tree, parents);
    /* Written and read again it is the same. */
    assert_int_equal(poise_coll_tree_write(tree, &out), 0);
    assert_int_equal(
        coll_tree_parse(out.data, out.len, "again", NULL, 8, &again), 0);
    expect_parents(again, parents);
    assert_memory_equal(tree->over, again->over, 8);
    poise_buf_free(&out);
    poise_coll_tree_free(tree);
    poise_coll_tree_free(again);
}

static void test_files(void **state)
{
    (void)state;
    reads("poise-tree 1\nrank 0 root\nrank 1-7 joins rank 0\n",
          "-1 0 0 0 0 0 0 0");
    reads("# a comment\n\n poise-tree\t1 # so\r\nrank 1-7 joins rank 0 fanin 2"
          "\nrank 0 root",
          "-1 0 0 1 1 2 2 3");
    reads("poise-tree 1\nhost a root\nhost b joins host a over mpi\n"
          "host c joins rank 3 fanin 9\nhost d root\n",
          "-1 0 0 2 2 3 5 -1");
    reads("poise-tree 1\nhost a root\nhost b joins host a\nhost c joins host b"
          "\nrank 4 joins rank 3 over shm\nrank 7 joins rank 4\n",
          "-1 0 0 2 3 2 5 4");
}

static void refuses(const char *text, const char *why)
{
    struct poise_coll_tree *tree;
    assert_int_equal(parse(text, &tree), -EINVAL);
    if (!strstr(poise_error_last()->why, why)) {
        fail_msg("'%s' instead of '%s'", poise_error_last()->why, why);
    }
    assert_string_equal(poise_error_last()->what, "file");
}

static void test_wrong_lines(void **state)
{
    (void)state;
    refuses("", "rank 0 joins nobody");
    refuses("poise-tree 2\n", "line 1: expected 'poise-tree 1'");
    refuses("rank 0 root\n", "line 1: expected 'poise-tree 1', not 'rank'");
    refuses("poise-tree 1\nrank 0 root\nrank 1-3 joins rank 0\n",
            "rank 4 joins nobody");
    refuses("poise-tree 1\nrank 0 root\nrank 1 joins rank 2\n"
            "rank 2-7 joins rank 1\n",
            "in a circle");
    refuses("poise-tree 1\nrank 1 joins rank 1\n"
            "rank 0 root\nrank 2-7 joins rank 0",
            "line 2: rank 1 joins itself");
    refuses("poise-tree 1\nhost e root\n", "line 2: no rank runs on host 'e'");
    refuses("poise-tree 1\nrank 8 root\n", "line 2: there is no rank 8");
    refuses("poise-tree 1\n\nrank 0-9 root\n", "line 3: there is no rank 9");
    refuses("poise-tree 1\nrank 3-1 root\n", "no rank or range");
    refuses("poise-tree 1\nrank -1 root\n", "no rank or range");
    refuses("poise-tree 1\nrank 0 root\nrank 0 root\n",
            "line 3: rank 0 has a line already, line 2");
    refuses("poise-tree 1\nrank 0 root now\n", "a root takes no 'now'");
    refuses("poise-tree 1\nrank 1 joins rank 0-2\n", "expected one rank");
    refuses("poise-tree 1\nrank 1 joins\n", "behind 'joins'");
    refuses("poise-tree 1\nrank 1 joins node 3\n", "not 'node'");
    refuses("poise-tree 1\nrank 1 joins rank 0 over tcp\n", "not 'over'");
    refuses("poise-tree 1\nrank 1 joins rank 0 fanin 0\n", "not 'fanin'");
    refuses("poise-tree 1\nrank 1 joins rank 0 fanin\n", "not 'fanin'");
    refuses("poise-tree 1\nnode 1 root\n", "not 'node'");
    refuses("poise-tree 1\nrank 1\n", "expected 'root' or 'joins'");
    refuses("poise-tree 1\na b c d e f g h i j k\n", "too many words");
    refuses("poise-tree 1\nrank 0-7 joins rank 0\n", "in a circle");
}

static void test_faults(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        struct poise_coll_tree *tree = NULL;
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        int code =
            parse("poise-tree 1\nrank 0 root\nrank 1-7 joins rank 0\n", &tree);
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        if (code == 0) {
            assert_true(k > 4);
            poise_coll_tree_free(tree);
            return;
        }
        assert_int_equal(code, -ENOMEM);
    }
}

/* ---- generators --------------------------------------------------------- */

static void makes(const char *topology, const char *shape, const char *parents)
{
    struct poise_local_options opts = {.topology = topology};
    struct poise_world *worlds[8];
    struct poise_coll_tree *tree;
    assert_int_equal(poise_world_create_local(8, &opts, worlds), 0);
    assert_int_equal(poise_coll_tree_make(worlds[3], shape, &tree), 0);
    expect_parents(tree, parents);
    assert_int_equal(coll_tree_check(tree, NULL, NULL), 0);
    poise_coll_tree_free(tree);
    for (int rank = 0; rank < 8; rank++) {
        poise_world_destroy(worlds[rank]);
    }
}

static void test_shapes(void **state)
{
    (void)state;
    makes(NULL, "flat", "-1 0 0 0 0 0 0 0");
    makes(NULL, "binary", "-1 0 0 1 1 2 2 3");
    makes(NULL, "kary:3", "-1 0 0 0 1 1 1 2");
    makes(NULL, "binomial", "-1 0 0 2 0 4 4 6");
    makes(NULL, "default", "-1 0 0 0 0 0 0 0");
    makes("1x4x1", "node", "-1 0 0 2 0 4 4 6");
    makes("1x4x1", "node:flat", "-1 0 0 2 0 4 0 6");
    makes("2x2x1", "site", "-1 0 0 2 0 4 4 6");
    makes("2x2x1", "magpie", "-1 0 0 2 -1 4 4 6");
    makes("4x1x1", "site:binary", "-1 0 0 2 0 4 0 6");
    makes("4x2x1", "magpie:kary:9", "-1 0 -1 2 -1 4 -1 6");
    makes("4x2x1", "default", "-1 0 -1 2 -1 4 -1 6");
}

static void test_wrong_shapes(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",      "kary",   "kary:0", "kary:x",
                                        "nodes", "node:x", "site:",  "magpie:"};
    struct poise_world *world;
    struct poise_coll_tree *tree;
    assert_int_equal(poise_world_create_local(1, NULL, &world), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(poise_coll_tree_make(world, wrong[i], &tree), -EINVAL);
    }
    poise_world_destroy(world);
}

/* ---- files of a whole world --------------------------------------------- */

static void test_load(void **state)
{
    (void)state;
    char path[TEMPORARY_BYTES];
    struct poise_coll_tree *tree;
    int fd = mkstemp(temporary_name(path, "tree"));
    assert_true(fd >= 0);
    dprintf(fd, "poise-tree 1\nrank 2 root\nrank 0-1 joins rank 2\n");
    assert_int_equal(poise_coll_tree_load(path, 3, &tree), 0);
    expect_parents(tree, "2 2 -1");
    poise_coll_tree_free(tree);
    /* A rank that nobody speaks of, one too many, a host. */
    assert_int_equal(poise_coll_tree_load(path, 4, &tree), -EINVAL);
    assert_non_null(strstr(poise_error_last()->why, "rank 3 joins nobody"));
    assert_int_equal(poise_coll_tree_load(path, 2, &tree), -EINVAL);
    dprintf(fd, "host here joins rank 0\n");
    assert_int_equal(poise_coll_tree_load(path, 3, &tree), -EINVAL);
    close(fd);
    unlink(path);
    assert_int_equal(poise_coll_tree_load(path, 3, &tree), -ENOENT);
}

static int read_file(struct poise_world *world, void *arg)
{
    struct poise_coll_tree *tree;
    EXPECT(poise_coll_tree_read(world, "/no/such/tree", &tree) == -ENOENT);
    EXPECT(strstr(poise_error_last()->what, "/no/such/tree"));
    EXPECT(poise_coll_tree_read(world, arg, &tree) == 0);
    EXPECT(poise_coll_tree_parent(tree, 3) == 2);
    /* Ranks 0 and 3 sit on different nodes; rank 3 says shared memory. */
    struct poise_coll_options options = {.tree = tree};
    struct poise_coll *coll;
    EXPECT(poise_coll_create(world, &options, &coll) == -EINVAL);
    EXPECT(strstr(poise_error_last()->why, "rank 3 cannot join rank 2"));
    poise_coll_tree_free(tree);
    return 0;
}

static void test_read(void **state)
{
    (void)state;
    char path[TEMPORARY_BYTES];
    char host[256] = "";
    int fd = mkstemp(temporary_name(path, "tree"));
    assert_true(fd >= 0);
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    dprintf(fd, "poise-tree 1\nhost %s root\nrank 3 joins rank 2 over shm\n",
            host);
    close(fd);
    struct poise_local_options opts = {.topology = "1x4x1"};
    run_clean(4, &opts, read_file, path);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),        cmocka_unit_test(test_wrong_lines),
        cmocka_unit_test(test_faults),       cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_wrong_shapes), cmocka_unit_test(test_read),
        cmocka_unit_test(test_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
