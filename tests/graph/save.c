/*
 * Room graph/io: what is written is read back; damage and faults are found;
 * ranks share a file.
 */
#include "../share.h"
#include "graph/io/internal.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "files.h"

/* ---- what is written is read back --------------------------------------- */

static int compare_pairs(const void *a, const void *b)
{
    return memcmp(a, b, 2 * sizeof(uint32_t));
}

/* Undirected edges once, with the smaller end first; sorted; without loops and
 * duplicates: what all formats can hold. */
static void normalise(struct poise_graph_edges *edges)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < edges->count; i++) {
        uint32_t a = edges->ends[2 * i], b = edges->ends[2 * i + 1];
        if (a != b) {
            bool swap = !edges->directed && a > b;
            edges->ends[2 * kept] = swap ? b : a;
            edges->ends[2 * kept + 1] = swap ? a : b;
            kept++;
        }
    }
    qsort(edges->ends, kept, 2 * sizeof(uint32_t), compare_pairs);
    edges->count = 0;
    for (uint64_t i = 0; i < kept; i++) {
        uint32_t *last = edges->ends + 2 * edges->count;
        if (i == 0 || compare_pairs(last - 2, edges->ends + 2 * i) != 0) {
            memmove(last, edges->ends + 2 * i, 2 * sizeof(uint32_t));
            edges->count++;
        }
    }
}

static void check_same(struct poise_graph_edges *a, struct poise_graph_edges *b)
{
    normalise(a);
    normalise(b);
    assert_int_equal(a->vertex_count, b->vertex_count);
    assert_int_equal(a->directed, b->directed);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->ends, b->ends, a->count * 2 * sizeof(uint32_t));
}

static struct poise_graph_edges some_graph(bool directed)
{
    struct poise_graph_edges edges = {0};
    struct poise_graph_kronecker options = {.scale = 13, .edge_factor = 12};
    assert_int_equal(poise_graph_generate(NULL, &options, &edges), 0);
    /* So that the largest label shows in an edge list. */
    assert_int_equal(poise_graph_edges_add(&edges, 8191, 0), 0);
    edges.directed = directed;
    return edges;
}

static void test_round_trips(void **state)
{
    (void)state;
    static const char *const names[] = {"r.el", "r.mtx", "r.graph", "r.gr",
                                        "r.sg", "r.pg",  "r.csv",   "r.tsv"};
    for (unsigned i = 0; i < 8; i++) {
        for (int directed = 0; directed < 2; directed++) {
            if (!in_share(i + (size_t)directed)) {
                continue;
            }
            struct poise_graph_edges edges = some_graph(directed);
            struct poise_graph_save_options options = {.threads = 1 + i % 3};
            int code = poise_graph_save(&edges, path_of(names[i]), &options);
            if (directed && i == 2) {
                assert_int_equal(code, -EINVAL);
                poise_graph_edges_free(&edges);
                continue;
            }
            assert_int_equal(code, 0);
            for (unsigned threads = 1; threads <= 3; threads += 2) {
                struct poise_graph_edges back = load_with(
                    names[i], (struct poise_graph_load_options){
                                  .threads = threads, .directed = directed});
                check_same(&edges, &back);
                poise_graph_edges_free(&back);
            }
            poise_graph_edges_free(&edges);
        }
    }
}

/* Our own format keeps order, loops, duplicates and isolated vertices. */
static void test_binary_is_exact(void **state)
{
    (void)state;
    static const uint64_t vertices[] = {1,       2,       256,       257,
                                        1 << 16, 1 << 24, 4294967295};
    for (size_t i = 0; i < sizeof vertices / sizeof *vertices; i++) {
        struct poise_graph_edges edges = {0};
        uint64_t last = vertices[i] - 1;
        poise_graph_edges_add(&edges, 0, 0);
        poise_graph_edges_add(&edges, last / 2, 0);
        poise_graph_edges_add(&edges, 0, last / 3);
        poise_graph_edges_add(&edges, last / 2, 0);
        edges.vertex_count = vertices[i];
        assert_int_equal(poise_graph_save(&edges, path_of("x.pg"), NULL), 0);
        struct poise_graph_edges back = load("x.pg");
        assert_int_equal(back.vertex_count, vertices[i]);
        assert_int_equal(back.count, 4);
        assert_memory_equal(back.ends, edges.ends, 32);
        poise_graph_edges_free(&edges);
        poise_graph_edges_free(&back);
    }
}

static void test_names_round_trip(void **state)
{
    (void)state;
    write_file("n.el", "ann bob\nbob cy\n", 15);
    struct poise_graph_edges edges = load("n.el"), back;
    static const char *const files[] = {"n2.el", "n2.pg"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(poise_graph_save(&edges, path_of(files[i]), NULL), 0);
        back = load(files[i]);
        assert_string_equal(text_of(&back), "0-1 1-2");
        expect_name(&back, 2, "cy");
        poise_graph_edges_free(&back);
    }
    assert_int_equal(poise_graph_save(&edges, path_of("n2.mtx"), NULL), 0);
    size_t len;
    char *names = read_file("n2.mtx.names", &len);
    assert_string_equal(names, "ann\nbob\ncy\n");
    free(names);
    poise_graph_edges_free(&edges);
}

/* Names that edge lists cannot hold go into fields, quoted where they must. */
static void test_fields_round_trip(void **state)
{
    (void)state;
    static const char *const names[] = {"Ann Lee", "a,b", "say \"no\"", "#tag",
                                        " x ",     "\"",  "12"};
    static const char mark[] = "\xef\xbb\xbfname", magic[] = "POISEGRF";
    enum { NAMES = sizeof names / sizeof *names };
    static const char *const files[] = {"f2.csv", "f2.tsv"};
    struct poise_graph_edges edges = {.names = graph_names_create()};
    uint32_t label;
    for (uint32_t i = 0; i < NAMES; i++) {
        graph_names_add(edges.names, names[i], strlen(names[i]), &label);
        poise_graph_edges_add(&edges, i, (i + 1) % NAMES);
    }
    assert_int_equal(poise_graph_save(&edges, path_of(files[0]), NULL), 0);
    struct poise_graph_edges back = load(files[0]);
    assert_string_equal(text_of(&back), "0-1 1-2 2-3 3-4 4-5 5-6 6-0");
    for (uint32_t i = 0; i < NAMES; i++) {
        expect_name(&back, i, names[i]);
    }
    poise_graph_edges_free(&back);
    /* Without quotes a name cannot look like a comment. */
    assert_int_equal(poise_graph_save(&edges, path_of(files[1]), NULL),
                     -EINVAL);
    assert_non_null(strstr(poise_error_last()->why, "'#tag'"));
    /* What would make another kind of the file is quoted, or refused. */
    struct poise_graph_edges odd = {.names = graph_names_create()};
    graph_names_add(odd.names, mark, sizeof mark - 1, &label);
    graph_names_add(odd.names, magic, sizeof magic - 1, &label);
    poise_graph_edges_add(&odd, 0, 1);
    poise_graph_edges_add(&odd, 1, 0);
    assert_int_equal(poise_graph_save(&odd, path_of(files[0]), NULL), 0);
    back = load(files[0]);
    assert_string_equal(text_of(&back), "0-1 1-0");
    expect_name(&back, 0, mark);
    expect_name(&back, 1, magic);
    poise_graph_edges_free(&back);
    assert_int_equal(poise_graph_save(&odd, path_of(files[1]), NULL), -EINVAL);
    assert_int_equal(poise_graph_save(&odd, path_of("f2.el"), NULL), -EINVAL);
    poise_graph_edges_free(&odd);
    graph_names_add(edges.names, "two\nlines", 9, &label);
    assert_int_equal(poise_graph_save(&edges, path_of(files[0]), NULL),
                     -EINVAL);
    poise_graph_edges_free(&edges);
}

static void test_save_errors(void **state)
{
    (void)state;
    struct poise_graph_edges edges = {0};
    poise_graph_edges_add(&edges, 0, 1);
    assert_int_equal(poise_graph_save(&edges, path_of("x.what"), NULL),
                     -EINVAL);
    assert_int_equal(poise_graph_save(&edges, path_of("no/x.el"), NULL),
                     -ENOENT);
    edges.names = graph_names_create();
    uint32_t label;
    graph_names_add(edges.names, "a b", 3, &label);
    graph_names_add(edges.names, "c", 1, &label);
    assert_int_equal(poise_graph_save(&edges, path_of("x.el"), NULL), -EINVAL);
    assert_non_null(strstr(poise_error_last()->why, "'a b'"));
    assert_int_equal(access(path_of("x.el"), F_OK), -1);
    poise_graph_edges_free(&edges);
}

/* ---- binary files gone wrong -------------------------------------------- */

/* Load `len` bytes as a file; the code. */
static int load_bytes(const char *name, const void *data, size_t len)
{
    struct poise_graph_edges edges = {0};
    write_file(name, data, len);
    int code = poise_graph_load(NULL, path_of(name), NULL, &edges);
    poise_graph_edges_free(&edges);
    return code;
}

static void test_binary_damage_is_found(void **state)
{
    (void)state;
    write_file("n.el", "ann bob\nbob cy\n", 15);
    struct poise_graph_edges edges = load("n.el");
    size_t len;
    assert_int_equal(poise_graph_save(&edges, path_of("x.pg"), NULL), 0);
    poise_graph_edges_free(&edges);
    char *data = read_file("x.pg", &len);
    assert_int_equal(load_bytes("y.pg", data, len), 0);
    for (size_t cut = 0; cut < len; cut++) {
        assert_int_equal(load_bytes("y.pg", data, cut), -EBADMSG);
    }
    for (size_t i = 0; i < len; i++) {
        data[i] ^= 0x10;
        assert_int_equal(load_bytes("y.pg", data, len), -EBADMSG);
        data[i] ^= 0x10;
    }
    static const char mark[] = {1, 2, 3, 4};
    memcpy(data + 8, mark, sizeof mark);
    expect_bad_with("y.pg", data, len, (struct poise_graph_load_options){0},
                    -EBADMSG, "other byte order");
    free(data);
}

static void test_newer_version_is_refused(void **state)
{
    (void)state;
    struct poise_graph_edges edges = {0};
    size_t len;
    poise_graph_edges_add(&edges, 0, 1);
    assert_int_equal(poise_graph_save(&edges, path_of("x.pg"), NULL), 0);
    poise_graph_edges_free(&edges);
    char *data = read_file("x.pg", &len);
    data[12] = 2;
    uint64_t hash = poise_hash_bytes(data, 56, 0);
    memcpy(data + 56, &hash, sizeof hash);
    expect_bad_with("y.pg", data, len, (struct poise_graph_load_options){0},
                    -EPROTO, "version 2");
    free(data);
}

static void put_i64(char *to, int64_t value)
{
    memcpy(to, &value, sizeof value);
}

static void test_gap_damage_is_found(void **state)
{
    (void)state;
    struct poise_graph_edges edges = {0};
    size_t len;
    poise_graph_edges_add(&edges, 0, 1);
    poise_graph_edges_add(&edges, 1, 2);
    assert_int_equal(poise_graph_save(&edges, path_of("x.sg"), NULL), 0);
    poise_graph_edges_free(&edges);
    char *data = read_file("x.sg", &len);
    assert_int_equal(len, 17 + 4 * 8 + 4 * 4);
    assert_int_equal(load_bytes("y.sg", data, len), 0);
    for (size_t cut = 0; cut < len; cut++) {
        assert_int_equal(load_bytes("y.sg", data, cut), -EBADMSG);
    }
    const struct poise_graph_load_options none = {0};
    char bad[80];
    memcpy(bad, data, len);
    bad[17 + 32] = 3;
    expect_bad_with("y.sg", bad, len, none, -EBADMSG,
                    "neighbour 3 of vertex 0 is not below 3");
    bad[17 + 32] = 2;
    expect_bad_with("y.sg", bad, len, none, -EBADMSG, "leads one way only");
    memcpy(bad, data, len);
    bad[17 + 8] = 4; /* the second row starts behind the third */
    expect_bad_with("y.sg", bad, len, none, -EBADMSG, "do not begin one after");
    memcpy(bad, data, len);
    put_i64(bad + 1, INT64_MAX);
    put_i64(bad + 9, INT64_MAX);
    expect_bad_with("y.sg", bad, len, none, -EBADMSG, "is it cut short?");
    put_i64(bad + 1, (int64_t)__builtin_bswap64(4));
    put_i64(bad + 9, (int64_t)__builtin_bswap64(3));
    expect_bad_with("y.sg", bad, len, none, -EBADMSG, "other byte order");
    bad[0] = 7;
    expect_bad_with("y.sg", bad, len, none, -EBADMSG, "not a serialised");
    free(data);
}

/* ---- trees -------------------------------------------------------------- */

static void test_tree_files(void **state)
{
    (void)state;
    const int64_t parents[] = {0, 0, -1}, depths[] = {0, 1, -1};
    struct poise_graph_tree tree = {
        .vertex_count = 3, .parents = parents, .depths = depths};
    size_t len;
    assert_int_equal(
        poise_graph_save_tree(&tree, path_of("tree.txt"), false, 2), 0);
    char *data = read_file("tree.txt", &len);
    assert_string_equal(data, "0\t0\t0\n1\t0\t1\n2\t-\t-1\n");
    free(data);
    assert_int_equal(poise_graph_save_tree(&tree, path_of("tree.npy"), true, 2),
                     0);
    data = read_file("tree.npy", &len);
    assert_int_equal(len, 128 + 3 * 16);
    assert_memory_equal(data, "\x93NUMPY\x01\0\x76\0{'descr': ", 20);
    assert_int_equal(data[127], '\n');
    assert_non_null(strstr(data + 20, "'shape': (3,), }"));
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(data + 128 + 16 * i, &parents[i], 8);
        assert_memory_equal(data + 136 + 16 * i, &depths[i], 8);
    }
    free(data);
}

/* ---- faults and progress ------------------------------------------------ */

static void test_faults_of_loading(void **state)
{
    (void)state;
    static const char *const names[] = {"f.el", "f.mtx", "f.graph", "f.sg",
                                        "f.pg", "f.gr",  "names.el"};
    static const struct {
        enum poise_fault kind;
        int code;
    } kinds[] = {{POISE_FAULT_ALLOC, ENOMEM},
                 {POISE_FAULT_OPEN, EACCES},
                 {POISE_FAULT_READ, EIO}};
    struct poise_graph_edges edges = {0};
    poise_graph_edges_add(&edges, 0, 1);
    poise_graph_edges_add(&edges, 5, 1);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(poise_graph_save(&edges, path_of(names[i]), NULL), 0);
    }
    poise_graph_edges_free(&edges);
    write_file("names.el", "a b\nc 3\n", 8);
    for (int i = 0; i < 7; i++) {
        for (int j = 0; j < 3; j++) {
            uint64_t k = 1;
            for (int code = -1; code < 0; k++) {
                struct poise_graph_load_options options = {.threads = 2};
                poise_fault_arm(kinds[j].kind, k, kinds[j].code, false);
                code =
                    poise_graph_load(NULL, path_of(names[i]), &options, &edges);
                poise_fault_arm(kinds[j].kind, 0, 0, false);
                assert_true(code == 0 || code == -kinds[j].code);
                assert_true(code == 0 || edges.ends == NULL);
                assert_true(k < 100);
            }
            assert_true(k > 2); /* the first one at least did fail */
            poise_graph_edges_free(&edges);
        }
    }
}

static bool temporary_is_left(void)
{
    DIR *dir = opendir(folder);
    bool left = false;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        left = left || strstr(e->d_name, ".tmp");
    }
    closedir(dir);
    return left;
}

static void test_faults_of_saving(void **state)
{
    (void)state;
    static const char *const names[] = {"g.el", "g.mtx", "g.graph",
                                        "g.gr", "g.sg",  "g.pg"};
    static const struct {
        enum poise_fault kind;
        int code;
    } kinds[] = {{POISE_FAULT_ALLOC, ENOMEM},
                 {POISE_FAULT_WRITE, ENOSPC},
                 {POISE_FAULT_RENAME, EACCES}};
    struct poise_graph_edges edges = {0};
    poise_graph_edges_add(&edges, 0, 1);
    poise_graph_edges_add(&edges, 5, 1);
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < 3; j++) {
            uint64_t k = 1;
            for (int code = -1; code < 0; k++) {
                struct poise_graph_save_options options = {.threads = 2};
                poise_fault_arm(kinds[j].kind, k, kinds[j].code, false);
                code = poise_graph_save(&edges, path_of(names[i]), &options);
                poise_fault_arm(kinds[j].kind, 0, 0, false);
                assert_true(code == 0 || code == -kinds[j].code);
                assert_false(temporary_is_left());
                assert_true(k < 100);
            }
            assert_true(k > 2);
            assert_int_equal(remove(path_of(names[i])), 0);
        }
    }
    poise_graph_edges_free(&edges);
}

static int stop_at_once(const char *doing, uint64_t done, uint64_t total,
                        void *arg)
{
    (void)doing;
    assert_true(done > 0 && done <= total);
    ++*(int *)arg;
    return -ECANCELED;
}

static void test_progress_can_stop(void **state)
{
    (void)state;
    int calls = 0;
    struct poise_graph_edges edges = some_graph(false);
    struct poise_graph_save_options save = {
        .threads = 1, .progress = stop_at_once, .arg = &calls};
    assert_int_equal(poise_graph_save(&edges, path_of("s.el"), &save),
                     -ECANCELED);
    assert_int_equal(calls, 1);
    save.progress = NULL;
    assert_int_equal(poise_graph_save(&edges, path_of("s.el"), &save), 0);
    poise_graph_edges_free(&edges);
    struct poise_graph_load_options options = {
        .threads = 1, .progress = stop_at_once, .arg = &calls};
    assert_int_equal(poise_graph_load(NULL, path_of("s.el"), &options, &edges),
                     -ECANCELED);
    assert_int_equal(calls, 2);
    assert_null(edges.ends);
}

/* ---- ranks -------------------------------------------------------------- */

struct rank {
    pthread_t thread;
    struct poise_world *world;
    const char *path;
    struct poise_graph_edges edges;
    int code;
    bool named;
};

static void *rank_main(void *arg)
{
    struct rank *rank = arg;
    struct poise_graph_load_options options = {.threads = 1};
    rank->code =
        poise_graph_load(rank->world, rank->path, &options, &rank->edges);
    rank->named = strstr(poise_error_last()->why, "line 30001:") != NULL;
    return NULL;
}

static void run_ranks(struct rank *ranks, int size, const char *path)
{
    struct poise_world *worlds[4];
    assert_int_equal(poise_world_create_local(size, NULL, worlds), 0);
    for (int r = 0; r < size; r++) {
        ranks[r] = (struct rank){.world = worlds[r], .path = path};
        assert_int_equal(
            pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < size; r++) {
        pthread_join(ranks[r].thread, NULL);
    }
    for (int r = 0; r < size; r++) {
        poise_world_destroy(worlds[r]);
    }
}

/* Each rank gets a part, and all together are the whole. */
static void check_ranks(const char *name, int size)
{
    struct rank ranks[4];
    char path[TEMPORARY_MORE];
    snprintf(path, sizeof path, "%s", path_of(name));
    struct poise_graph_edges whole = load(name), joined = {0};
    run_ranks(ranks, size, path);
    for (int r = 0; r < size; r++) {
        assert_int_equal(ranks[r].code, 0);
        assert_int_equal(ranks[r].edges.vertex_count, whole.vertex_count);
        for (uint64_t i = 0; i < ranks[r].edges.count; i++) {
            poise_graph_edges_add(&joined, ranks[r].edges.ends[2 * i],
                                  ranks[r].edges.ends[2 * i + 1]);
        }
        assert_int_equal(graph_names_count(ranks[r].edges.names),
                         graph_names_count(whole.names));
        joined.directed = ranks[r].edges.directed;
        poise_graph_edges_free(&ranks[r].edges);
    }
    joined.vertex_count = whole.vertex_count;
    assert_int_equal(joined.count, whole.count);
    check_same(&joined, &whole);
    poise_graph_edges_free(&joined);
    poise_graph_edges_free(&whole);
}

static void test_ranks_share_a_file(void **state)
{
    (void)state;
    static const char *const names[] = {"k.el", "k.mtx", "k.graph",
                                        "k.gr", "k.sg",  "k.pg"};
    struct poise_graph_edges edges = some_graph(false);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(poise_graph_save(&edges, path_of(names[i]), NULL), 0);
    }
    poise_graph_edges_free(&edges);
    for (int size = 1; size <= 4; size++) {
        for (int i = 0; i < 6; i++) {
            if (in_share((size_t)(size + i))) {
                check_ranks(names[i], size);
            }
        }
        write_file("k.txt", "ann bob\nbob cy\ncy dan\n", 22);
        check_ranks("k.txt", size);
        write_file("k.txt", "1 9000000000\n9000000000 5\n5 5\n", 30);
        check_ranks("k.txt", size);
    }
}

static void test_ranks_agree_on_an_error(void **state)
{
    (void)state;
    struct rank ranks[3];
    struct poise_buf text = {0};
    char path[TEMPORARY_MORE];
    for (int i = 0; i < 300000; i++) {
        poise_buf_puts(&text, i == 30000 ? "1 x\n" : "1000000 2000000\n");
    }
    write_file("e.el", text.data, text.len);
    poise_buf_free(&text);
    snprintf(path, sizeof path, "%s", path_of("e.el"));
    run_ranks(ranks, 3, path);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].code, -EBADMSG);
        assert_true(ranks[r].named);
        assert_null(ranks[r].edges.ends);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_binary_is_exact),
        cmocka_unit_test(test_names_round_trip),
        cmocka_unit_test(test_fields_round_trip),
        cmocka_unit_test(test_save_errors),
        cmocka_unit_test(test_binary_damage_is_found),
        cmocka_unit_test(test_newer_version_is_refused),
        cmocka_unit_test(test_gap_damage_is_found),
        cmocka_unit_test(test_tree_files),
        cmocka_unit_test(test_faults_of_loading),
        cmocka_unit_test(test_faults_of_saving),
        cmocka_unit_test(test_progress_can_stop),
        cmocka_unit_test(test_ranks_share_a_file),
        cmocka_unit_test(test_ranks_agree_on_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
