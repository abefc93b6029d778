/*
 * An inventory as an SQLite database: one transaction, without a journal, into
 * the empty file of an output, which becomes visible when it is whole.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

static const char schema[] =
    "PRAGMA journal_mode=OFF;"
    "PRAGMA synchronous=OFF;"
    "PRAGMA page_size=8192;"
    "PRAGMA cache_size=-4096;"
    "CREATE TABLE dirs(id INTEGER PRIMARY KEY, parent INTEGER, name);"
    "CREATE TABLE entries(dir INTEGER, name, type TEXT, mode INTEGER,"
    " uid INTEGER, gid INTEGER, size INTEGER, blocks INTEGER, nlink INTEGER,"
    " ino INTEGER, dev INTEGER, mtime INTEGER, ctime INTEGER,"
    " mtime_ns INTEGER);"
    "CREATE VIEW files AS SELECT"
    " (WITH RECURSIVE up(id, path) AS ("
    "   SELECT e.dir, CAST(e.name AS TEXT)"
    "   UNION ALL"
    "   SELECT d.parent, CASE WHEN substr(d.name, -1) = '/'"
    "     THEN d.name || up.path ELSE d.name || '/' || up.path END"
    "   FROM up JOIN dirs d ON d.id = up.id)"
    "  SELECT path FROM up WHERE id IS NULL) AS path, * FROM entries e;"
    "BEGIN;";

struct import {
    const char *path;
    sqlite3 *db;
    sqlite3_stmt *dirs, *entries;
};

static int failed(const struct import *im, const char *doing)
{
    int code = ENOMEM;
    switch (sqlite3_errcode(im->db) & 0xff) {
    case SQLITE_FULL:
        code = ENOSPC;
        break;
    case SQLITE_NOMEM:
        break;
    default:
        code = EIO;
        break;
    }
    return poise_error_set(code, doing, im->path, "%s", sqlite3_errmsg(im->db));
}

static int bind_name(sqlite3_stmt *to, int column, const struct walk_row *row)
{
    int len = (int)row->name_len;
    if (poise_utf8_valid(row->name, row->name_len) == row->name_len) {
        return sqlite3_bind_text(to, column, row->name, len, SQLITE_STATIC);
    }
    return sqlite3_bind_blob(to, column, row->name, len, SQLITE_STATIC);
}

/* Operands have no directory: NULL. */
static int bind_dir(sqlite3_stmt *to, int column, uint64_t dir)
{
    return dir ? sqlite3_bind_int64(to, column, (int64_t)dir)
               : sqlite3_bind_null(to, column);
}

static int import_row(const struct walk_row *row, void *arg)
{
    struct import *im = arg;
    sqlite3_stmt *to = im->entries;
    const char type[2] = {walk_type_letter(row->mode), 0};
    const int64_t numbers[] = {
        row->mode & 07777,
        row->uid,
        row->gid,
        (int64_t)row->size_bytes,
        (int64_t)row->blocks,
        (int64_t)row->nlink,
        (int64_t)row->ino,
        (int64_t)row->dev,
        row->mtime,
        row->ctime,
        row->mtime_ns,
    };
    int code = poise_fault_check(POISE_FAULT_WRITE);
    if (code) {
        return poise_error_set(code, "write inventory", im->path, NULL);
    }
    if (bind_dir(to, 1, row->dir) != SQLITE_OK ||
        bind_name(to, 2, row) != SQLITE_OK ||
        sqlite3_bind_text(to, 3, type, 1, SQLITE_STATIC) != SQLITE_OK) {
        return failed(im, "write inventory");
    }
    for (int i = 0; i < (int)(sizeof numbers / sizeof *numbers); i++) {
        sqlite3_bind_int64(to, 4 + i, numbers[i]);
    }
    if (sqlite3_step(to) != SQLITE_DONE || sqlite3_reset(to) != SQLITE_OK) {
        return failed(im, "write inventory");
    }
    if (!row->id) {
        return 0;
    }
    sqlite3_bind_int64(im->dirs, 1, (int64_t)row->id);
    bind_dir(im->dirs, 2, row->dir);
    bind_name(im->dirs, 3, row);
    return sqlite3_step(im->dirs) == SQLITE_DONE &&
                   sqlite3_reset(im->dirs) == SQLITE_OK
               ? 0
               : failed(im, "write inventory");
}

static int import_part(struct import *im, const struct walk_part *part)
{
    int fd = poise_file_open(AT_FDCWD, part->path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    struct walk_blocks blocks = {
        .fd = fd, .path = part->path, .end = part->bytes};
    int code = walk_blocks_each(&blocks, import_row, im);
    close(fd);
    return code;
}

static int import_all(struct import *im, const struct walk_part *parts,
                      size_t count)
{
    int code = 0;
    if (sqlite3_exec(im->db, schema, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(im->db, "INSERT INTO dirs VALUES(?,?,?)", -1,
                           &im->dirs, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(
            im->db, "INSERT INTO entries VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            -1, &im->entries, NULL) != SQLITE_OK) {
        return failed(im, "write inventory");
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        code = import_part(im, &parts[i]);
    }
    if (code == 0 &&
        sqlite3_exec(im->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK) {
        code = failed(im, "write inventory");
    }
    return code;
}

int walk_sqlite_write(const char *path, const struct walk_part *parts,
                      size_t count)
{
    struct import im = {.path = path};
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
    int code = sqlite3_open_v2(path, &im.db, flags, NULL) == SQLITE_OK
                   ? import_all(&im, parts, count)
                   : failed(&im, "create inventory");
    sqlite3_finalize(im.dirs);
    sqlite3_finalize(im.entries);
    if (sqlite3_close(im.db) != SQLITE_OK && code == 0) {
        code = failed(&im, "write inventory");
    }
    return code;
}
