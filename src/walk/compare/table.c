/*
 * Differences as a database: one table, into the empty file of an output,
 * which becomes visible when it is whole.
 */
#include "internal.h"

#include "walk/engine/engine.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>

struct poise_compare_table {
    struct poise_output *output;
    sqlite3 *db;
    sqlite3_stmt *insert;
};

static const char schema[] =
    "PRAGMA journal_mode=OFF;"
    "PRAGMA synchronous=OFF;"
    "PRAGMA cache_size=-4096;"
    "CREATE TABLE differences(path, kinds TEXT, other, first_byte INTEGER,"
    " a_type TEXT, a_mode INTEGER, a_uid INTEGER, a_gid INTEGER,"
    " a_nlink INTEGER, a_size INTEGER, a_mtime INTEGER, a_mtime_ns INTEGER,"
    " b_type TEXT, b_mode INTEGER, b_uid INTEGER, b_gid INTEGER,"
    " b_nlink INTEGER, b_size INTEGER, b_mtime INTEGER, b_mtime_ns INTEGER);"
    "BEGIN;";
static const char insert[] =
    "INSERT INTO differences VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";

static int failed(const struct poise_compare_table *table)
{
    int code = sqlite3_errcode(table->db) & 0xff;
    return poise_error_set(code == SQLITE_FULL    ? ENOSPC
                           : code == SQLITE_NOMEM ? ENOMEM
                                                  : EIO,
                           "write differences to",
                           poise_output_name(table->output), "%s",
                           sqlite3_errmsg(table->db));
}

int poise_compare_table_open(const char *path, struct poise_compare_table **out)
{
    struct poise_compare_table *table = poise_alloc(1, sizeof *table);
    const struct poise_output_options options = {.named = true};
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
    /* SQLite locks nothing: where flock(2) is made of the locks that it uses,
     * as on NFS, the output's would be in its way. */
    int code =
        table ? poise_output_open(path, &options, &table->output) : -ENOMEM;
    if (code == 0 && !poise_output_name(table->output)) {
        code = poise_error_set(EINVAL, "write differences to", path,
                               "a database wants a regular file");
    }
    if (code == 0 &&
        (sqlite3_open_v2(poise_output_name(table->output), &table->db, flags,
                         "unix-none") != SQLITE_OK ||
         sqlite3_exec(table->db, schema, NULL, NULL, NULL) != SQLITE_OK ||
         sqlite3_prepare_v2(table->db, insert, -1, &table->insert, NULL) !=
             SQLITE_OK)) {
        code = failed(table);
    }
    if (code < 0) {
        poise_compare_table_abort(table);
        return code;
    }
    *out = table;
    return 0;
}

static void bind_bytes(sqlite3_stmt *to, int column, const char *text,
                       size_t len)
{
    if (poise_utf8_valid(text, len) == len) {
        sqlite3_bind_text(to, column, text, (int)len, SQLITE_STATIC);
    } else {
        sqlite3_bind_blob(to, column, text, (int)len, SQLITE_STATIC);
    }
}

/* Eight columns from `first` on; all NULL where there is none. */
static void bind_side(sqlite3_stmt *to, int first,
                      const struct poise_compare_side *side)
{
    const char type[2] = {walk_type_letter(side->mode), 0};
    const int64_t numbers[] = {
        side->mode & 07777,        side->uid,   side->gid,     side->nlink,
        (int64_t)side->size_bytes, side->mtime, side->mtime_ns};
    if (!side->exists) {
        for (int i = 0; i < 8; i++) {
            sqlite3_bind_null(to, first + i);
        }
        return;
    }
    sqlite3_bind_text(to, first, type, 1, SQLITE_TRANSIENT);
    for (int i = 0; i < 7; i++) {
        sqlite3_bind_int64(to, first + 1 + i, numbers[i]);
    }
}

int poise_compare_table_add(struct poise_compare_table *table,
                            const struct poise_difference *d)
{
    sqlite3_stmt *to = table->insert;
    struct poise_buf kinds = {0};
    for (int i = 0; i < POISE_DIFFERS_KINDS; i++) {
        if (d->kinds >> i & 1) {
            poise_buf_puts(&kinds, kinds.len ? "," : "");
            poise_buf_puts(&kinds, poise_differs_names[i]);
        }
    }
    int code = kinds.error ? kinds.error : poise_fault_check(POISE_FAULT_WRITE);
    if (code > 0) {
        code = poise_error_set(code, "write differences to",
                               poise_output_name(table->output), NULL);
    }
    if (code == 0) {
        bind_bytes(to, 1, d->path, d->path_len);
        sqlite3_bind_text(to, 2, kinds.data, (int)kinds.len, SQLITE_STATIC);
        bind_bytes(to, 3, d->other, strlen(d->other));
        if (d->at == UINT64_MAX) {
            sqlite3_bind_null(to, 4);
        } else {
            sqlite3_bind_int64(to, 4, (int64_t)d->at);
        }
        bind_side(to, 5, &d->a);
        bind_side(to, 13, &d->b);
        if (sqlite3_step(to) != SQLITE_DONE || sqlite3_reset(to) != SQLITE_OK) {
            code = failed(table);
        }
    }
    poise_buf_free(&kinds);
    return code;
}

int poise_compare_table_commit(struct poise_compare_table *table)
{
    int code = sqlite3_exec(table->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK
                   ? 0
                   : failed(table);
    sqlite3_finalize(table->insert);
    table->insert = NULL;
    if (code == 0) {
        struct poise_output *output = table->output;
        table->output = NULL;
        sqlite3_close(table->db);
        table->db = NULL;
        code = poise_output_commit(output, false);
    }
    poise_compare_table_abort(table);
    return code;
}

void poise_compare_table_abort(struct poise_compare_table *table)
{
    if (table) {
        sqlite3_finalize(table->insert);
        sqlite3_close(table->db);
        poise_output_abort(table->output);
        free(table);
    }
}
