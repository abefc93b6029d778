/*
 * The usual questions to an inventory of many rows: answers against what is
 * known of the rows, and the time that each takes on standard output. With
 * POISE_TEST_SOAK a million rows, else a few thousand.
 */
#include "tree.h"
#include "walk/survey/internal.h"

#include <poise/core.h>

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Behind what it wants. */
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { IN_DIR = 10, OWNERS = 50, BLOCK_ROWS = 500, BELOW = 3 };

static const char *const suffixes[] = {"c",   "h",   "txt", "o",  "dat",
                                       "jpg", "csv", "py",  "gz", ""};
enum { SUFFIXES = sizeof suffixes / sizeof *suffixes };
enum { NOW = 1790000000, YEAR = 365 * 24 * 3600 };

/* What is known of the rows. */
static struct {
    uint64_t rows, files, size[SUFFIXES], owner[OWNERS], largest;
    uint64_t old_count, below_count, below_size;
} truth;

/* ---- the rows ----------------------------------------------------------- */

struct writer {
    int fd;
    uint64_t offset, rows;
    struct walk_row_state state;
    struct poise_buf block;
};

static void flush(struct writer *w)
{
    char head[WALK_BLOCK_HEAD];
    walk_block_head(head, w->block.data, w->block.len, (uint32_t)w->rows);
    assert_true(poise_file_pwrite(w->fd, head, sizeof head, w->offset, "p") ==
                0);
    assert_true(poise_file_pwrite(w->fd, w->block.data, w->block.len,
                                  w->offset + sizeof head, "p") == 0);
    w->offset += sizeof head + w->block.len;
    w->rows = 0;
    poise_buf_reset(&w->block);
    walk_row_state_reset(&w->state);
}

static void put(struct writer *w, const struct walk_row *row)
{
    assert_true(walk_row_encode(&w->state, row, &w->block) == 0);
    truth.rows++;
    if (++w->rows == BLOCK_ROWS) {
        flush(w);
    }
}

static bool is_below(uint64_t dir)
{
    while (dir > BELOW) {
        dir = (dir - 2) / IN_DIR + 1; /* its parent */
    }
    return dir == BELOW;
}

/* Directory n > 1 lies in (n - 2) / IN_DIR + 1: a tree of IN_DIR branches. */
static void put_dir(struct writer *w, uint64_t n, struct poise_rng *rng)
{
    char name[64];
    int len = snprintf(name, sizeof name, n == 1 ? "/data" : "dir%llu",
                       (unsigned long long)n);
    struct walk_row row = {.dir = n == 1 ? 0 : ((n - 2) / IN_DIR + 1) << 32,
                           .id = n << 32,
                           .ino = n,
                           .dev = 1,
                           .size_bytes = 4096,
                           .blocks = 8,
                           .nlink = 2,
                           .mode = S_IFDIR | 0755,
                           .mtime = NOW - (int64_t)poise_rng_below(rng, YEAR),
                           .name = name,
                           .name_len = (size_t)len};
    put(w, &row);
    truth.owner[0] += 8;
}

static void put_file(struct writer *w, uint64_t dir, uint64_t ino,
                     struct poise_rng *rng)
{
    char name[64];
    uint64_t kind = poise_rng_below(rng, SUFFIXES);
    int len = snprintf(name, sizeof name, "some-file-%llu%s%s",
                       (unsigned long long)ino, *suffixes[kind] ? "." : "",
                       suffixes[kind]);
    uint64_t size =
        poise_rng_below(rng, UINT64_C(1) << (1 + poise_rng_below(rng, 34)));
    struct walk_row row = {.dir = dir << 32,
                           .ino = ino,
                           .dev = 1,
                           .size_bytes = size,
                           .blocks = (size + 511) / 512,
                           .nlink = 1,
                           .mode = S_IFREG | 0644,
                           .uid = (uint32_t)poise_rng_below(rng, OWNERS),
                           .mtime =
                               NOW - (int64_t)poise_rng_below(rng, 5 * YEAR),
                           .atime = NOW,
                           .name = name,
                           .name_len = (size_t)len};
    put(w, &row);
    truth.files++;
    truth.size[kind] += size;
    truth.owner[row.uid] += row.blocks;
    truth.largest = size > truth.largest ? size : truth.largest;
    truth.old_count += row.mtime < NOW - 2 * YEAR && size > 1 << 30;
    if (is_below(dir)) {
        truth.below_count++;
        truth.below_size += size;
    }
}

static void make_rows(const char *path, uint64_t rows, struct walk_part *part)
{
    struct writer w = {
        .fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
    struct poise_rng rng;
    uint64_t dirs = rows / IN_DIR;
    assert_true(w.fd >= 0);
    poise_rng_seed(&rng, 11);
    /* Files before their directories, in pieces: as workers write them. */
    for (uint64_t n = dirs; n >= 1; n--) {
        for (uint64_t k = 0; k < IN_DIR - 1; k++) {
            put_file(&w, n, dirs + n * IN_DIR + k, &rng);
        }
        put_dir(&w, n, &rng);
    }
    if (w.rows > 0) {
        flush(&w);
    }
    close(w.fd);
    poise_buf_free(&w.block);
    walk_row_state_free(&w.state);
    part->bytes = w.offset;
}

/* ---- questions ---------------------------------------------------------- */

/* Columns of the first row. */
struct answer {
    int rows;
    uint64_t number[3];
    char text[64]; /* of the second column */
};

static struct answer ask(sqlite3 *db, const char *what, const char *sql)
{
    struct answer answer = {0};
    sqlite3_stmt *all;
    uint64_t start = poise_clock_ns(), cpu = poise_clock_cpu_ns();
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &all, NULL), SQLITE_OK);
    while (sqlite3_step(all) == SQLITE_ROW) {
        for (int i = 0;
             answer.rows == 0 && i < sqlite3_column_count(all) && i < 3; i++) {
            answer.number[i] = (uint64_t)sqlite3_column_int64(all, i);
            if (i == 1) {
                snprintf(answer.text, sizeof answer.text, "%s",
                         (const char *)sqlite3_column_text(all, i));
            }
        }
        answer.rows++;
    }
    sqlite3_finalize(all);
    printf("%-34s %7.1f ms, %7.1f of CPU time, %d rows\n", what,
           (double)(poise_clock_ns() - start) / 1e6,
           (double)(poise_clock_cpu_ns() - cpu) / 1e6, answer.rows);
    return answer;
}

static void questions(sqlite3 *db)
{
    char old[256];
    struct answer row = ask(db, "largest files",
                            "SELECT size, path FROM files WHERE type = 'f' "
                            "ORDER BY size DESC LIMIT 20");
    assert_true(row.rows == 20 && row.number[0] == truth.largest);
    assert_true(strncmp(row.text, "/data/", 6) == 0);
    row = ask(db, "by owner",
              "SELECT uid, count(*), sum(blocks) * 512 AS bytes FROM entries "
              "WHERE counted GROUP BY uid ORDER BY uid");
    assert_true(row.rows == OWNERS && row.number[2] == truth.owner[0] * 512);
    snprintf(old, sizeof old,
             "SELECT path, size FROM files WHERE type = 'f' AND "
             "size > 1 << 30 AND mtime < %d",
             NOW - 2 * YEAR);
    row = ask(db, "older than two years, above 1 GiB", old);
    assert_true((uint64_t)row.rows == truth.old_count);
    row = ask(db, "by age",
              "SELECT (1790000000 - mtime) / 31536000 AS years, count(*), "
              "sum(size) FROM entries WHERE type = 'f' GROUP BY years");
    assert_true(row.rows == 5);
    row = ask(db, "below a directory",
              "SELECT count(*), sum(size) FROM entries WHERE type = 'f' AND "
              "dir BETWEEN (SELECT id FROM dirs WHERE path = '/data/dir3/') "
              "AND (SELECT last FROM dirs WHERE path = '/data/dir3/')");
    assert_true(row.number[0] == truth.below_count);
    assert_true(row.number[1] == truth.below_size);
    row = ask(db, "below the operand",
              "SELECT count(*), sum(size) FROM entries WHERE type = 'f' AND "
              "dir BETWEEN (SELECT id FROM dirs WHERE path = '/data/') "
              "AND (SELECT last FROM dirs WHERE path = '/data/')");
    assert_true(row.number[0] == truth.files);
    row = ask(db, "by suffix",
              "SELECT suffix, count(*), sum(size) FROM entries "
              "WHERE type = 'f' GROUP BY suffix ORDER BY suffix LIMIT 20");
    assert_true(row.rows == SUFFIXES &&
                row.number[2] == truth.size[SUFFIXES - 1]);
    row =
        ask(db, "fullest directories",
            "SELECT count(*) AS n, path FROM entries "
            "JOIN dirs ON dirs.id = dir GROUP BY dir ORDER BY n DESC LIMIT 20");
    assert_true(row.rows == 20 && row.number[0] == 2 * IN_DIR - 1);
    row = ask(db, "all paths", "SELECT path FROM files");
    assert_true((uint64_t)row.rows == truth.rows);
}

static void test_questions(void **state)
{
    (void)state;
    char place[256], part_path[300], path[300];
    uint64_t rows = getenv("POISE_TEST_SOAK") ? 1000000 : 20000;
    struct walk_part part = {.path = part_path};
    struct stat st;
    sqlite3 *db;
    close(tree_temporary(place));
    snprintf(part_path, sizeof part_path, "%s/part", place);
    snprintf(path, sizeof path, "%s/db", place);
    make_rows(part_path, rows, &part);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && close(fd) == 0);
    uint64_t cpu = poise_clock_cpu_ns();
    assert_int_equal(walk_sqlite_write(path, &part, 1), 0);
    assert_int_equal(stat(path, &st), 0);
    printf("%llu rows written in %.1f s of CPU time, %lld bytes each\n",
           (unsigned long long)truth.rows,
           (double)(poise_clock_cpu_ns() - cpu) / 1e9,
           (long long)st.st_size / (long long)truth.rows);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    questions(db);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    unlink(part_path);
    unlink(path);
    rmdir(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_questions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
