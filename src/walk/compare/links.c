/*
 * Which names belong to one file: the same ones in both trees?
 *
 * Every file that has several names in one of them comes here by each name
 * that both trees have. Two names are linked in A if their inodes in A are the
 * same, so the names of each inode of A must have one inode in B, and the other
 * way round. Names are kept in a temporary database, which sorts them on disk:
 * memory does not grow with them. It takes the cache of that, which is only
 * added to and read once through, and three times as much while it sorts.
 */
#include "internal.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>

struct compare_links {
    sqlite3 *db;
    sqlite3_stmt *insert;
};

static const char schema[] =
    "PRAGMA journal_mode=OFF;"
    "PRAGMA synchronous=OFF;"
    "PRAGMA cache_size=-1024;"
    "CREATE TABLE names(a_dev INTEGER, a INTEGER, b_dev INTEGER, b INTEGER,"
    " path BLOB);"
    "BEGIN;";
/* Names of one inode in A in a row, the first of them the least. */
static const char in_a[] =
    "SELECT a_dev, a, b_dev, b, path FROM names ORDER BY 1, 2, 5";
static const char in_b[] =
    "SELECT b_dev, b, a_dev, a, path FROM names ORDER BY 1, 2, 5";

static int failed(const struct compare_links *links)
{
    int code = sqlite3_errcode(links->db) & 0xff;
    return poise_error_set(code == SQLITE_FULL    ? ENOSPC
                           : code == SQLITE_NOMEM ? ENOMEM
                                                  : EIO,
                           "sort names of linked files", NULL, "%s",
                           sqlite3_errmsg(links->db));
}

int compare_links_create(struct compare_links **out)
{
    struct compare_links *links = poise_alloc(1, sizeof *links);
    int flags =
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int code = 0;
    if (!links) {
        return -ENOMEM;
    }
    /* A name of no bytes: a file of its own that has no name. */
    if (sqlite3_open_v2("", &links->db, flags, NULL) != SQLITE_OK ||
        sqlite3_exec(links->db, schema, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(links->db, "INSERT INTO names VALUES(?,?,?,?,?)", -1,
                           &links->insert, NULL) != SQLITE_OK) {
        code = failed(links);
        compare_links_destroy(links);
        return code;
    }
    *out = links;
    return 0;
}

void compare_links_destroy(struct compare_links *links)
{
    if (links) {
        sqlite3_finalize(links->insert);
        sqlite3_close(links->db);
        free(links);
    }
}

int compare_links_add(struct compare_links *links, const uint64_t inodes[4],
                      const char *path, size_t len)
{
    sqlite3_stmt *to = links->insert;
    for (int i = 0; i < 4; i++) {
        sqlite3_bind_int64(to, i + 1, (int64_t)inodes[i]);
    }
    sqlite3_bind_blob(to, 5, path, (int)len, SQLITE_STATIC);
    return sqlite3_step(to) == SQLITE_DONE && sqlite3_reset(to) == SQLITE_OK
               ? 0
               : failed(links);
}

/* The first name of an inode. */
struct first {
    int64_t key[2], other[2];
    struct poise_buf path;
};

/* A name of the same inode on this side: is it that on the other side? */
static int check_row(sqlite3_stmt *row, struct first *first,
                     struct compare_run *run)
{
    int64_t n[4];
    const char *path = sqlite3_column_blob(row, 4);
    size_t len = (size_t)sqlite3_column_bytes(row, 4);
    for (int i = 0; i < 4; i++) {
        n[i] = sqlite3_column_int64(row, i);
    }
    bool begins =
        first->path.len == 0 || n[0] != first->key[0] || n[1] != first->key[1];
    if (begins) {
        poise_buf_reset(&first->path);
        poise_buf_append(&first->path, path, len);
        memcpy(first->key, n, sizeof first->key);
        memcpy(first->other, n + 2, sizeof first->other);
        poise_buf_str(&first->path);
        return first->path.error;
    }
    if (n[2] == first->other[0] && n[3] == first->other[1]) {
        return 0;
    }
    struct poise_buf own = {0};
    poise_buf_append(&own, path, len);
    struct poise_difference d = {.kinds = POISE_DIFFERS_LINKS,
                                 .path = poise_buf_str(&own),
                                 .path_len = len,
                                 .other = poise_buf_str(&first->path)};
    int code = own.error ? own.error : compare_count(run, &d);
    poise_buf_free(&own);
    return code;
}

static int check_side(struct compare_links *links, const char *query,
                      struct compare_run *run)
{
    struct first first = {0};
    sqlite3_stmt *rows = NULL;
    int code = 0, step = SQLITE_ERROR;
    if (sqlite3_prepare_v2(links->db, query, -1, &rows, NULL) == SQLITE_OK) {
        while (code == 0 && (step = sqlite3_step(rows)) == SQLITE_ROW) {
            code = check_row(rows, &first, run);
        }
    }
    if (code == 0 && step != SQLITE_DONE) {
        code = failed(links);
    }
    sqlite3_finalize(rows);
    poise_buf_free(&first.path);
    return code;
}

int compare_links_check(struct compare_links *links, struct compare_run *run)
{
    int code = check_side(links, in_a, run);
    return code < 0 ? code : check_side(links, in_b, run);
}
