/* Room graph/io: reading edge lists, packed files and formats with headers. */
#include "graph/io/internal.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

#include "files.h"

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

#define MARK "\xef\xbb\xbf"
#define BANNER "%%MatrixMarket matrix coordinate pattern general\n"

/* A byte-order mark is no part of the first word, whatever the format; text of
 * other widths is none. */
static void test_byte_order_marks(void **state)
{
    (void)state;
    expect("m.el", MARK "0 1\n1 2\n", 3, false, "0-1 1-2");
    expect("m.el", MARK "# x\n0 1\n", 2, false, "0-1");
    expect("m.csv", MARK "\"0\",\"1\"\n", 2, false, "0-1");
    expect("m.mtx", MARK BANNER "2 2 1\n2 1\n", 2, true, "1-0");
    expect("m.graph", MARK "2 1\n2\n1\n", 2, false, "0-1");
    expect("m.gr", MARK "p sp 2 1\na 1 2 1\n", 2, true, "0-1");
    expect("m", MARK BANNER "2 2 1\n2 1\n", 2, true, "1-0");
    expect_bad("m.el", MARK, "there is no vertex");
    expect_bad("m.el", "\xef\xbb", "line 1: two vertices are wanted");
    static const char *const names[] = {"w.el",    "w.csv", "w.mtx",
                                        "w.graph", "w.gr",  "w"};
    const struct poise_graph_load_options none = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        expect_bad_with(names[i], "\xff\xfe\x30\0 \0\x31\0\n\0", 10, none,
                        -EBADMSG, "UTF-16");
        expect_bad_with(names[i], "\xfe\xff\0\x30\0 \0\x31\0\n", 10, none,
                        -EBADMSG, "UTF-16");
    }
    /* Without a mark it is known by its bytes of zero. */
    expect_bad_with("w.el", "0\0 \0001\0\n\0", 8, none, -EBADMSG,
                    "line 1: a byte of zero; is this text?");
    expect_bad_with("w.csv", "a\0,\0b\0\n\0", 8, none, -EBADMSG,
                    "line 1: a byte of zero; is this text?");
}

/* Fields of CSV are those of RFC 4180: quotes are no part of them, blanks are;
 * each comma parts two. */
static void test_csv(void **state)
{
    (void)state;
    expect("q.csv", "\"0\",\"1\"\r\n1, 2,\"x,y\"\r\n", 3, false, "0-1 1-2");
    expect("q.csv", "# from, to\n0,1,\n", 2, false, "0-1");
    static const char text[] = "\"Ann Lee\",Bob\n"
                               "Bob,\"He said \"\"no\"\", twice\"\n\n"
                               "% left out\n"
                               "\"#tag\",Bob ,5\n"
                               "Bob,Ann Lee\n";
    write_file("q.csv", text, sizeof text - 1);
    struct poise_graph_edges edges = load("q.csv");
    assert_string_equal(text_of(&edges), "0-1 1-2 3-4 1-0");
    expect_name(&edges, 0, "Ann Lee");
    expect_name(&edges, 1, "Bob");
    expect_name(&edges, 2, "He said \"no\", twice");
    expect_name(&edges, 3, "#tag");
    expect_name(&edges, 4, "Bob ");
    poise_graph_edges_free(&edges);
    expect_bad("q.csv", "0,1\n1,,2\n", "line 2: two vertices are wanted");
    expect_bad("q.csv", "a,b\na,,b\n", "line 2: two vertices are wanted");
    expect_bad("q.csv", "a,b\n\"\",b\n", "line 2: two vertices are wanted");
    expect_bad("q.csv", "0 1\n", "line 1: two vertices with a comma between");
    expect_bad("q.csv", "a;b\n", "line 1: two vertices with a comma between");
    expect_bad("q.csv", "a,\"b\nc\"\n", "line 1: a quote that opens a field");
    expect_bad("q.csv", "a,\"b\"c\n", "line 1: 'c' follows the quote");
    expect_bad("q.csv", "a,b\"c\n", "line 1: a quote within a field");
    expect_bad("q.csv", "0,1,\"a\n2,3\"\n", "line 1: a quote that opens");
    expect_bad("q.csv", "a,b,,\"a\nc,d\"\n", "line 1: a quote that opens");
    expect_bad("q.csv", "\"0\",\"1x\"\n", "line 1: '1x' is not the number");
}

static void test_tsv(void **state)
{
    (void)state;
    static const char text[] = "Ann Lee\tBob\r\nBob\t\"x\"\t7\r\n";
    write_file("q.tsv", text, sizeof text - 1);
    struct poise_graph_edges edges = load("q.tsv");
    assert_string_equal(text_of(&edges), "0-1 1-2");
    expect_name(&edges, 0, "Ann Lee");
    expect_name(&edges, 2, "\"x\"");
    poise_graph_edges_free(&edges);
    expect("q.tsv", "0\t1\n1\t 2\n", 3, false, "0-1 1-2");
    expect_bad("q.tsv", "0\t1\n1 2\n",
               "line 2: two vertices with a tab between");
    expect_bad("q.tsv", "a b\n", "line 1: two vertices with a tab between");
}

/* What an edge list takes for words, and what not. */
static void test_snap_words(void **state)
{
    (void)state;
    static const char text[] = "\"a b\" \"c\"\n\"c\",d\nd , \"a b\"\n";
    write_file("q.el", text, sizeof text - 1);
    struct poise_graph_edges edges = load("q.el");
    assert_string_equal(text_of(&edges), "0-1 1-2 2-0");
    expect_name(&edges, 0, "a b");
    poise_graph_edges_free(&edges);
    expect_bad("q.el", "0 1\n1,,2\n", "line 2: two vertices are wanted");
    expect_bad("q.el", "0 1\n\"1 2\n", "line 2: a quote that opens a field");
    /* Lines of old Macs are one line, of which all but the first two words
     * would be lost. */
    expect_bad("q.el", "0 1\r1 2\r2 3\r", "line 1: a carriage return within");
    expect_bad("q.el", "a b\rc d\n", "line 1: a carriage return within");
    expect_bad("q.mtx", BANNER "3 3 2\n1 2\r1 3\n",
               "line 3: a carriage return");
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
    expect("named.xyz", MTX "Complex Hermitian\n2 2 1\n2 1 5 -1\n", 2, false,
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

/* What the standard forbids, and LAGraph's mangled files hold. */
static void test_mtx_forbidden(void **state)
{
    (void)state;
    static const struct {
        const char *content, *why;
    } cases[] = {
        {"pattern hermitian\n2 2 1\n2 2\n",
         "line 1: there are no hermitian matrices of kind pattern"},
        {"real hermitian\n2 2 1\n2 2 1\n", "line 1: there are no hermitian"},
        {"pattern skew-symmetric\n2 2 1\n2 1\n",
         "line 1: there are no skew-symmetric matrices of kind pattern"},
        {"real general more\n2 2 1\n2 2 1\n", "line 1: more words than five"},
        {"real general\n3 3 2\n1 1 1\n2 2\n", "line 4: a value is missing"},
        {"real general\n%%GraphBLAS type gunk\n3 3 1\n1 1 1\n",
         "line 2: unknown type of GraphBLAS"},
        {"real general\n3 3 1\n1 1 1 2\n", "line 3: '2' is more than"},
        {"pattern general\n3 3 1\n1 1 1\n", "line 3: '1' is more than"},
        {"complex general\n3 3 1\n1 1 1\n", "line 3: a value is missing"},
        {"real general\n3 3 1\n1 1 x\n", "line 3: 'x' is not a number"},
        {"real general\n3 3 1\n1 1 1e\n", "line 3: '1e' is not a number"},
        {"real general\n3 3 1\n1 1 -\n", "line 3: '-' is not a number"},
        {"real general\n3 3 1\n1 1 .\n", "line 3: '.' is not a number"},
        {"real general\n3 3 1\n1 1 0x1p3\n", "line 3: '0x1p3' is not"},
        {"integer general\n3 3 1\n1 1 1.5\n",
         "line 3: '1.5' is not a whole number"},
        {"integer general\n%%GraphBLAS type int8_t\n3 3 2\n1 1 -128\n1 2 "
         "-129\n",
         "line 5: -129 is out of the range"},
        {"integer general\n%%GraphBLAS type bool\n3 3 2\n1 1 1\n1 2 2\n",
         "line 5: 2 is out of the range"},
        {"integer general\n%%GraphBLAS type uint64_t\n3 3 3\n1 1 -0\n1 2 "
         "+18446744073709551615\n1 2 -1\n",
         "line 6: -1 is out of the range"},
        {"integer general\n%%GraphBLAS type int64_t\n3 3 2\n1 1 "
         "-9223372036854775808\n1 2 9223372036854775808\n",
         "line 5: 9223372036854775808 is out of the range"},
        {"integer skew-symmetric\n%%GraphBLAS type uint8_t\n2 2 1\n2 1 1\n",
         "line 2: uint8_t has no skew-symmetric matrices"},
        {"integer skew-symmetric\n3 3 1\n1 1 1\n",
         "line 3: entry 1, 1 is on the diagonal"},
        {"pattern general\n3 3 1\n1,1\n", "line 3: '1,1' is not the number"},
        {"real general\n3 3 1\n1 1,5\n", "line 3: '1,5' is not the number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct poise_buf text = {0};
        poise_buf_printf(&text, "%s%s", MTX, cases[i].content);
        expect_bad("f.mtx", poise_buf_str(&text), cases[i].why);
        poise_buf_free(&text);
    }
    expect("f.mtx",
           MTX "real symmetric\n3 3 5\n1 1 1.\n2 1 -.5D-3\n1 3 +1E5\n"
               "3 3 NaN\n3 2 -inf\n",
           3, false, "0-0 1-0 0-2 2-2 2-1");
    expect("f.mtx", MTX "integer skew-symmetric\n2 2 1\n2 1 -7\n", 2, false,
           "1-0");
    /* LAGraph writes those of its types so. */
    expect("f.mtx",
           MTX "integer general\n%%GraphBLAS type double\n%%GraphBLAS x\n"
               "2 2 1\n2 1 -0.7\n",
           2, true, "1-0");
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
    expect("d.col", "p col 3 2\nn 1 5\nd 2 3\nv 1 1\nx 1\ne 1 2\nc\ne 2 3\n", 3,
           false, "0-1 1-2");
    expect_bad("d.col", "p col 3 1\nca 1\ne 1 2\n",
               "line 2: a line that begins with 'e' is wanted");
    expect_bad("d.col", "p col 3 1\ne 1 2 3\n", "line 2: '3' is more than");
    expect_bad("d.gr", "p sp 3 1\nn 1 s\na 1 2 3\n", "line 2: a line that");
    expect_bad("d.gr", "p sp 3 1\na 1 2\n", "line 2: a value is missing");
    expect_bad("d.gr", "p sp 3 1\na 1 2 x\n", "line 2: 'x' is not a number");
    expect_bad("d.gr", "p sp 3 1\na 1,2 3\n", "line 2: '1,2' is not");
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
    expect_bad("v.graph", "3 2 10\n7 2\n7 1 3\n\n",
               "line 4: 1 of the numbers before the neighbours are missing");
    expect_bad("v.graph", "3 2 11 2\n7\n7 1 3\n7 2\n",
               "line 2: 1 of the numbers before the neighbours");
    expect_bad("v.graph", "3 2 1\n2 0\n1 0 3 1\n2 1\n",
               "line 2: an edge of weight 0");
    expect_bad("v.graph", "3 2 1 1\n2 1\n1 1 3 1\n2 1\n", "line 1: 'VERTICES");
    expect_bad("v.graph", "3 2 10 0\n2\n1 3\n2\n", "line 1: 'VERTICES");
    expect_bad("v.graph", "3 2\n2\r1 3\n2\n", "line 2: '2' is not a number");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snap_forms),
        cmocka_unit_test(test_snap_options),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_sparse_ids),
        cmocka_unit_test(test_snap_errors),
        cmocka_unit_test(test_byte_order_marks),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_tsv),
        cmocka_unit_test(test_snap_words),
        cmocka_unit_test(test_many_blocks),
        cmocka_unit_test(test_names_of_many_blocks),
        cmocka_unit_test(test_wrong_kind_of_file),
        cmocka_unit_test(test_memory_is_refused),
        cmocka_unit_test(test_limits_of_the_process_count),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_mtx),
        cmocka_unit_test(test_mtx_forbidden),
        cmocka_unit_test(test_dimacs),
        cmocka_unit_test(test_metis),
        cmocka_unit_test(test_metis_weights),
        cmocka_unit_test(test_metis_errors),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
