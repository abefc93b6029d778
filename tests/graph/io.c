/* Room graph: readers and writers of files. */
#include "../temporary.h"
#include "graph/io/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

static char folder[TEMPORARY_BYTES];

static const char *path_of(const char *name)
{
    static char path[2][TEMPORARY_MORE];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void write_file(const char *name, const void *data, size_t len)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static char *read_file(const char *name, size_t *len)
{
    FILE *file = fopen(path_of(name), "rb");
    assert_non_null(file);
    char *data = malloc(1 << 20);
    assert_non_null(data);
    *len = fread(data, 1, 1 << 20, file);
    assert_true(*len < 1 << 20);
    data[*len] = '\0';
    fclose(file);
    return data;
}

static struct poise_graph_edges
load_with(const char *name, struct poise_graph_load_options options)
{
    struct poise_graph_edges edges = {0};
    int code = poise_graph_load(NULL, path_of(name), &options, &edges);
    if (code < 0) {
        struct poise_buf buf = {0};
        poise_error_format(poise_error_last(), &buf);
        print_error("%s\n", poise_buf_str(&buf));
        poise_buf_free(&buf);
    }
    assert_int_equal(code, 0);
    return edges;
}

static struct poise_graph_edges load(const char *name)
{
    return load_with(name, (struct poise_graph_load_options){0});
}

/* The edges as "0-1 1-2". */
static const char *text_of(const struct poise_graph_edges *edges)
{
    static char text[1024];
    size_t len = 0;
    text[0] = '\0';
    for (uint64_t i = 0; i < edges->count && len < sizeof text - 30; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%u-%u",
                                i > 0 ? " " : "", edges->ends[2 * i],
                                edges->ends[2 * i + 1]);
    }
    return text;
}

static void expect(const char *name, const char *content, uint64_t vertices,
                   bool directed, const char *edges_text)
{
    write_file(name, content, strlen(content));
    struct poise_graph_edges edges = load(name);
    assert_string_equal(text_of(&edges), edges_text);
    assert_int_equal(edges.vertex_count, vertices);
    assert_int_equal(edges.directed, directed);
    poise_graph_edges_free(&edges);
}

static void expect_bad_with(const char *name, const void *content, size_t len,
                            struct poise_graph_load_options options, int code,
                            const char *why)
{
    struct poise_graph_edges edges = {0};
    write_file(name, content, len);
    for (options.threads = 1; options.threads <= 3; options.threads++) {
        assert_int_equal(
            poise_graph_load(NULL, path_of(name), &options, &edges), code);
        const struct poise_error *err = poise_error_last();
        if (!strstr(err->why, why)) {
            fail_msg("'%s' is not in '%s'", why, err->why);
        }
        assert_true(code == -ENOMEM || strstr(err->what, name));
        assert_null(edges.ends);
    }
}

static void expect_bad(const char *name, const char *content, const char *why)
{
    expect_bad_with(name, content, strlen(content),
                    (struct poise_graph_load_options){0}, -EBADMSG, why);
}

/* ---- edge lists --------------------------------------------------------- */

static void test_snap_forms(void **state)
{
    (void)state;
    expect("a.el", "0 1\n1 2\n", 3, false, "0-1 1-2");
    expect("a.txt", "# Nodes: 3\r\n#x\r\n0\t1\r\n1\t2\r\n", 3, false,
           "0-1 1-2");
    expect("noend.el", "0 1\n1 2", 3, false, "0-1 1-2");
    expect("weights.wel", "0 1 0.5\n1 2 -3 99\n", 3, false, "0-1 1-2");
    expect("commas.csv", "0,1\n1, 2\n", 3, false, "0-1 1-2");
    expect("blanks.el", "\n  0   1  \n\n\t1\t\t2\n% x\n# y\n   \n", 3, false,
           "0-1 1-2");
    expect("loops.el", "1 1\n0 1\n0 1\n", 2, false, "1-1 0-1 0-1");
    expect("long.el", "00000000000000000000012 3\n123456 1000000\n", 1000001,
           false, "12-3 123456-1000000");
    expect("unnamed", "5 6\n", 7, false, "5-6");
}

static void test_snap_options(void **state)
{
    (void)state;
    write_file("d.el", "0 1\n2 0\n", 8);
    struct poise_graph_edges edges =
        load_with("d.el", (struct poise_graph_load_options){.directed = true});
    assert_true(edges.directed);
    poise_graph_edges_free(&edges);
    edges = load_with("d.el", (struct poise_graph_load_options){.names = true});
    assert_string_equal(text_of(&edges), "0-1 2-0");
    assert_int_equal(poise_graph_names_find(edges.names, "2", 1), 2);
    poise_graph_edges_free(&edges);
}

static void expect_name(const struct poise_graph_edges *edges, uint32_t label,
                        const char *name)
{
    size_t len;
    const char *got = poise_graph_names_of(edges->names, label, &len);
    assert_non_null(got);
    assert_int_equal(len, strlen(name));
    assert_memory_equal(got, name, len);
    assert_int_equal(poise_graph_names_find(edges->names, name, len), label);
}

static void test_names(void **state)
{
    (void)state;
    write_file("n.el", "# people\nann bob\nbob 7\n7 ann 12\n", 32);
    struct poise_graph_edges edges = load("n.el");
    assert_string_equal(text_of(&edges), "0-1 1-2 2-0");
    assert_int_equal(edges.vertex_count, 3);
    expect_name(&edges, 0, "ann");
    expect_name(&edges, 1, "bob");
    expect_name(&edges, 2, "7");
    size_t len;
    assert_null(poise_graph_names_of(edges.names, 3, &len));
    assert_null(poise_graph_names_of(NULL, 0, &len));
    assert_int_equal(poise_graph_names_find(edges.names, "an", 2), -ENOENT);
    assert_int_equal(poise_graph_names_find(NULL, "an", 2), -ENOENT);
    poise_graph_edges_free(&edges);
}

/* Ids above 32 bits, and ids so far apart that labels would waste memory,
 * become names in ascending order. */
static void test_sparse_ids(void **state)
{
    (void)state;
    write_file("s.el", "18446744073709551614 7\n7 5000000000\n", 36);
    struct poise_graph_edges edges = load("s.el");
    assert_string_equal(text_of(&edges), "2-0 0-1");
    assert_int_equal(edges.vertex_count, 3);
    expect_name(&edges, 0, "7");
    expect_name(&edges, 1, "5000000000");
    expect_name(&edges, 2, "18446744073709551614");
    poise_graph_edges_free(&edges);
    write_file("s.el", "12345678 1234567890123\n123456789 12345678\n", 42);
    edges = load("s.el");
    assert_string_equal(text_of(&edges), "0-2 1-0");
    expect_name(&edges, 0, "12345678");
    expect_name(&edges, 1, "123456789");
    expect_name(&edges, 2, "1234567890123");
    poise_graph_edges_free(&edges);
    write_file("s.el", "4000000000 7\n", 13);
    edges = load("s.el");
    assert_string_equal(text_of(&edges), "1-0");
    assert_int_equal(edges.vertex_count, 2);
    poise_graph_edges_free(&edges);
}

static void test_snap_errors(void **state)
{
    (void)state;
    expect_bad("b.el", "0 1\n0 x\n", "line 2: 'x' is not the number");
    expect_bad("b.el", "0 1\n\n#\n5\n", "line 4: two vertices are wanted");
    expect_bad("b.el", "0 -1\n", "line 1: '-1' is not the number");
    expect_bad("b.el", "-1 0\n", "line 1: '-1' is not the number");
    expect_bad("b.el", "0 1x\n", "line 1: '1x' is not the number");
    expect_bad("b.el", "0 1.5\n", "line 1: '1.5' is not the number");
    expect_bad("b.el", "0 99999999999999999999999\n",
               "line 1: 99999999999999999999999 is above 2^64");
    expect_bad("b.el", "0 1\n0 18446744073709551615\n", "line 2: vertex 18446");
    expect_bad("b.el", "a b\nc\n", "line 2: two vertices are wanted");
    expect_bad("b.el", "", "there is no vertex");
    expect_bad("b.el", "# only\n", "there is no vertex");
    expect_bad_with("b.el", "0 1\n0 \0\n", 8,
                    (struct poise_graph_load_options){0}, -EBADMSG, "line 2: ");
    struct poise_graph_edges edges = {0};
    assert_int_equal(poise_graph_load(NULL, path_of("missing"), NULL, &edges),
                     -ENOENT);
    assert_int_equal(poise_graph_load(NULL, folder, NULL, &edges), -EISDIR);
}

/* Several blocks: the order of the file is kept, and of several bad lines the
 * first is named, by its number in the file. */
static void test_many_blocks(void **state)
{
    (void)state;
    enum { EDGES = 400000 };
    struct poise_buf text = {0};
    for (uint32_t i = 0; i < EDGES; i++) {
        poise_buf_printf(&text, "%u %u\n", i % 1000, (i * 7919U) % 200000);
    }
    assert_true(text.len > 3 << 20);
    write_file("big.el", text.data, text.len);
    for (unsigned threads = 1; threads <= 4; threads++) {
        struct poise_graph_edges edges = load_with(
            "big.el", (struct poise_graph_load_options){.threads = threads});
        assert_int_equal(edges.count, EDGES);
        for (uint32_t i = 0; i < EDGES; i++) {
            if (edges.ends[2 * i] != i % 1000 ||
                edges.ends[2 * i + 1] != (i * 7919U) % 200000) {
                fail_msg("edge %u is wrong", i);
            }
        }
        poise_graph_edges_free(&edges);
    }
    char *line = text.data;
    for (uint32_t i = 1; i < EDGES; i++) {
        line = strchr(line, '\n') + 1;
        if (i == 222222 || i == 333333) {
            line[0] = '?';
        }
    }
    expect_bad_with("big.el", text.data, text.len,
                    (struct poise_graph_load_options){0}, -EBADMSG,
                    "line 222223: '?");
    poise_buf_free(&text);
}

static void test_names_of_many_blocks(void **state)
{
    (void)state;
    enum { EDGES = 200000, NAMES = 1000 };
    struct poise_buf text = {0};
    for (uint32_t i = 0; i < EDGES; i++) {
        poise_buf_printf(&text, "name%u other%u\n", i % NAMES, i % 77);
    }
    assert_true(text.len > 2 << 20);
    write_file("names.el", text.data, text.len);
    poise_buf_free(&text);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct poise_graph_edges edges = load_with(
            "names.el", (struct poise_graph_load_options){.threads = threads});
        assert_int_equal(edges.count, EDGES);
        assert_int_equal(edges.vertex_count, NAMES + 77);
        expect_name(&edges, 0, "name0");
        expect_name(&edges, 1, "other0");
        expect_name(&edges, 2 * 76, "name76");
        expect_name(&edges, 2 * 77, "name77");
        for (uint32_t i = 0; i < EDGES; i += 991) {
            char name[20];
            snprintf(name, sizeof name, "name%u", i % NAMES);
            expect_name(&edges, edges.ends[2 * i], name);
            snprintf(name, sizeof name, "other%u", i % 77);
            expect_name(&edges, edges.ends[2 * i + 1], name);
        }
        poise_graph_edges_free(&edges);
    }
}

static void test_wrong_kind_of_file(void **state)
{
    (void)state;
    char *zeros = calloc(3 << 20, 1);
    assert_non_null(zeros);
    expect_bad_with("zeros.el", zeros, 3 << 20,
                    (struct poise_graph_load_options){0}, -EBADMSG,
                    "is this text?");
    free(zeros);
}

static void test_memory_is_refused(void **state)
{
    (void)state;
    struct poise_graph_load_options small = {.memory_bytes = 100000};
    const char *mtx = "%%MatrixMarket matrix coordinate pattern general\n"
                      "9 9 1000000\n1 2\n";
    expect_bad_with("m.mtx", mtx, strlen(mtx), small, -ENOMEM,
                    "1,000,000 edges of 8 bytes are 7.6 MiB of memory; 97.7 "
                    "KiB is the limit");
    const char *gr = "p sp 9 1000000\na 1 2 3\n";
    expect_bad_with("m.gr", gr, strlen(gr), small, -ENOMEM, "1,000,000 edges");
    const char *metis = "9 1000000\n";
    expect_bad_with("m.graph", metis, strlen(metis), small, -ENOMEM,
                    "1,000,000 edges of 16 bytes");
    struct poise_buf text = {0};
    for (uint32_t i = 0; i < 400000; i++) {
        poise_buf_printf(&text, "%u %u\n", i, i + 1);
    }
    expect_bad_with("m.el", text.data, text.len, small, -ENOMEM,
                    "edges, or more, of 8 bytes are");
    /* More than expected from the beginning: found when it is read. */
    small.memory_bytes = 2900000;
    expect_bad_with("m.el", text.data, text.len, small, -ENOMEM,
                    "its edges need more memory than there is");
    poise_buf_free(&text);
    /* 2^62 edges overflow no arithmetic. */
    mtx = "%%MatrixMarket matrix coordinate pattern general\n"
          "9 9 4611686018427387904\n1 2\n";
    expect_bad_with("m.mtx", mtx, strlen(mtx), small, -ENOMEM, "more than");
}

/* A limit of the address space counts, less what is in use. */
static void test_limits_of_the_process_count(void **state)
{
    (void)state;
    const struct rlimit limit = {.rlim_cur = 1 << 20,
                                 .rlim_max = RLIM_INFINITY};
    const uint64_t left = graph_memory_left();
    assert_in_range(left, 1, UINT64_C(1) << 50);
    pid_t child = fork();
    if (child == 0) {
        /* Less than this process already has: nothing is left. */
        _exit(setrlimit(RLIMIT_AS, &limit) == 0 && graph_memory_left() == 0
                  ? 0
                  : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- packed files ------------------------------------------------------- */

static size_t gzip(const char *text, size_t len, unsigned char *out,
                   size_t room)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, 0), Z_OK);
    z.next_in = (unsigned char *)text;
    z.avail_in = (unsigned)len;
    z.next_out = out;
    z.avail_out = (unsigned)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t bytes = room - z.avail_out;
    deflateEnd(&z);
    return bytes;
}

static void test_packed(void **state)
{
    (void)state;
    enum { EDGES = 200000, ROOM = 4 << 20 };
    struct poise_buf text = {0};
    unsigned char *packed = malloc(ROOM);
    assert_non_null(packed);
    for (uint32_t i = 0; i < EDGES; i++) {
        poise_buf_printf(&text, "%u %u\n", i, i * 3);
    }
    for (int kind = 0; kind < 3; kind++) {
        size_t len, half = text.len / 2;
        if (kind == 0) {
            len = gzip(text.data, text.len, packed, ROOM);
        } else if (kind == 1) { /* two members, cut in the middle of a line */
            len = gzip(text.data, half, packed, ROOM);
            len += gzip(text.data + half, text.len - half, packed + len,
                        ROOM - len);
        } else {
            len = ZSTD_compress(packed, ROOM, text.data, half, 1);
            len += ZSTD_compress(packed + len, ROOM - len, text.data + half,
                                 text.len - half, 1);
        }
        write_file("p.el.gz", packed, len);
        struct poise_graph_edges edges = load("p.el.gz");
        assert_int_equal(edges.count, EDGES);
        for (uint32_t i = 0; i < EDGES; i++) {
            assert_int_equal(edges.ends[2 * i + 1], i * 3);
        }
        poise_graph_edges_free(&edges);
        expect_bad_with("p.el.gz", packed, len / 3,
                        (struct poise_graph_load_options){0}, -EBADMSG,
                        "cut short");
        packed[len / 2] ^= 0x55;
        packed[len / 2 + 1] ^= 0x55;
        struct poise_graph_edges none = {0};
        write_file("p.el.gz", packed, len);
        assert_int_equal(
            poise_graph_load(NULL, path_of("p.el.gz"), NULL, &none), -EBADMSG);
    }
    size_t len = gzip("1 2\n", 4, packed, ROOM);
    memcpy(packed + len, "junk", 4);
    expect_bad_with("j.el.gz", packed, len + 4,
                    (struct poise_graph_load_options){0}, -EBADMSG,
                    "something else follows");
    free(packed);
    poise_buf_free(&text);
}

/* ---- formats with headers ----------------------------------------------- */

#define MTX "%%MatrixMarket matrix coordinate "

static void test_mtx(void **state)
{
    (void)state;
    expect("a.mtx", MTX "pattern symmetric\n% c\n3 3 2\n2 1\n3 2\n", 3, false,
           "1-0 2-1");
    expect("a.mtx", MTX "real general\n4 4 2\n2 1 0.5\n\n3 3 -1e9\n", 4, true,
           "1-0 2-2");
    expect("named.xyz", MTX "Integer Hermitian\n2 2 1\n2 1 5\n", 2, false,
           "1-0");
    expect("none.mtx", MTX "pattern general\n3 3 0\n", 3, true, "");
    expect_bad("a.mtx", MTX "pattern general\n3 3 2\n2 1\n",
               "promises 2 edges, but 1 are there; is it cut short?");
    expect_bad("a.mtx", MTX "pattern general\n3 3 1\n2 1\n1 2\n",
               "promises 1 edges, but 2 are there");
    expect_bad("a.mtx", MTX "pattern general\n3 3 2\n2 1\n1 4\n",
               "line 4: vertex 4 is not within 1 and 3");
    expect_bad("a.mtx", MTX "pattern general\n%\n3 3 2\n0 1\n1 3\n",
               "line 4: vertex 0 is not within 1 and 3");
    expect_bad("a.mtx", MTX "pattern general\n3 4 2\n", "line 2: 3 rows and 4");
    expect_bad("a.mtx", MTX "pattern general\n3 3\n", "line 2: the numbers");
    expect_bad("a.mtx", MTX "pattern general\n", "ends within its header");
    expect_bad("a.mtx", MTX "pattern odd\n3 3 1\n", "line 1: unknown kind");
    expect_bad("a.mtx", "%%MatrixMarket matrix array real general\n",
               "line 1: only sparse");
    expect_bad("a.mtx", "3 3 1\n1 2\n", "line 1: '%%MatrixMarket");
    expect_bad("a.mtx", "", "line 1: '%%MatrixMarket");
    expect_bad("a.mtx", MTX "pattern general\n5000000000 5000000000 0\n",
               "line 2: 5000000000 vertices are more");
}

static void test_dimacs(void **state)
{
    (void)state;
    expect("a.gr", "c x\np sp 3 2\nc y\na 1 2 17\na 3 1 4\n", 3, true,
           "0-1 2-0");
    expect("a.col", "p edge 3 2\ne 1 2\ne 2 3\n", 3, false, "0-1 1-2");
    expect("plain", "p sp 2 1\na 1 2 1\n", 2, true, "0-1");
    expect_bad("a.gr", "p sp 3 2\na 1 2 1\n", "promises 2 edges, but 1 are");
    expect_bad("a.gr", "p sp 3 1\na 1 4 1\n", "line 2: vertex 4 is not within");
    expect_bad("a.gr", "p sp 3 1\nb 1 2 1\n",
               "line 2: a line that begins with 'a' is wanted");
    expect_bad("a.gr", "c\nq sp 3 1\n", "line 2: 'p sp VERTICES ARCS'");
    expect_bad("a.gr", "p sp 3\n", "line 1: 'p sp VERTICES ARCS'");
    expect_bad("a.gr", "c nothing\n", "ends within its header");
}

static void test_metis(void **state)
{
    (void)state;
    expect("a.graph", "4 2\n2\n1 3\n2 \n\n", 4, false, "0-1 1-2");
    expect("b.graph", "% c\n3 2\n2\n% c\n1 3\n2\n", 3, false, "0-1 1-2");
}

static void test_metis_weights(void **state)
{
    (void)state;
    expect("w.graph", "3 2 001\n2 9\n1 9 3 8\n2 8\n", 3, false, "0-1 1-2");
    expect("w.graph", "3 2 011 2\n5 6 2 9\n5 6 1 9 3 8\n5 6 2 8\n", 3, false,
           "0-1 1-2");
    expect("w.graph", "3 2 100\n7 2\n7 1 3\n7 2\n\n\n", 3, false, "0-1 1-2");
}

static void test_metis_errors(void **state)
{
    (void)state;
    expect_bad("b.graph", "3 2\n2\n1 3\n", "3 vertices, but 2 rows are there");
    expect_bad("b.graph", "3 2\n2\n1 4\n2\n",
               "line 3: neighbour 4 is not within 1 and 3");
    expect_bad("b.graph", "3 2\n2\n1 0\n2\n", "line 3: neighbour 0 is not");
    expect_bad("b.graph", "3 2\n2\n1 3\n2\n\n1\n",
               "line 6: row 5, but there are 3 vertices");
    expect_bad("b.graph", "3 3\n2\n1 3\n2\n", "so 6 neighbours, but 4");
    expect_bad("b.graph", "3 2\n2\n1 3\n1\n", "one of its ends only");
    expect_bad("b.graph", "3 2\n2\nx 3\n2\n", "line 3: 'x' is not a number");
    expect_bad("b.graph", "3 2 1\n2 5\n1 5 3\n2 5\n",
               "line 3: the last neighbour has no weight");
    expect_bad("b.graph", "3 2 2\n2\n", "line 1: 'VERTICES EDGES");
    expect_bad("b.graph", "%\nx\n", "line 2: 'VERTICES EDGES");
    expect_bad("b.graph", "", "no header");
}

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
    static const char *const names[] = {"r.el", "r.mtx", "r.graph",
                                        "r.gr", "r.sg",  "r.pg"};
    for (unsigned i = 0; i < 6; i++) {
        for (int directed = 0; directed < 2; directed++) {
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
            check_ranks(names[i], size);
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

static int setup(void **state)
{
    (void)state;
    return mkdtemp(temporary_name(folder, "graph-io")) ? 0 : -1;
}

static int teardown(void **state)
{
    char command[TEMPORARY_MORE];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snap_forms),
        cmocka_unit_test(test_snap_options),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_sparse_ids),
        cmocka_unit_test(test_snap_errors),
        cmocka_unit_test(test_many_blocks),
        cmocka_unit_test(test_names_of_many_blocks),
        cmocka_unit_test(test_wrong_kind_of_file),
        cmocka_unit_test(test_memory_is_refused),
        cmocka_unit_test(test_limits_of_the_process_count),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_mtx),
        cmocka_unit_test(test_dimacs),
        cmocka_unit_test(test_metis),
        cmocka_unit_test(test_metis_weights),
        cmocka_unit_test(test_metis_errors),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_binary_is_exact),
        cmocka_unit_test(test_names_round_trip),
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
    return cmocka_run_group_tests(tests, setup, teardown);
}
