/*
 * An inventory as an SQLite database: one transaction, without a journal, into
 * the empty file of an output, which becomes visible when it is whole.
 *
 * Directories come first. They are numbered so that those below one have the
 * numbers behind its own, up to `last`, and get their paths, once: what lies
 * below a directory is a range, and the path of an entry a concatenation.
 * Parts know directories by ids of the walk, so they are read twice.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Longer paths are put together when they are asked for: in a chain of n
 * directories they would take n * n bytes. */
enum { SQLITE_PATH_MOST = 4096 };

static const char schema[] =
    "PRAGMA journal_mode=OFF;"
    "PRAGMA synchronous=OFF;"
    "PRAGMA cache_size=-1024;"
    "PRAGMA user_version=2;"
    "CREATE TABLE dirs(id INTEGER PRIMARY KEY, parent INTEGER, name,"
    " path TEXT, last INTEGER);"
    "CREATE TABLE entries(dir INTEGER, name, type TEXT, mode INTEGER,"
    " uid INTEGER, gid INTEGER, size INTEGER, blocks INTEGER, nlink INTEGER,"
    " ino INTEGER, dev INTEGER, mtime INTEGER, ctime INTEGER,"
    " mtime_ns INTEGER, atime INTEGER, suffix, counted INTEGER);"
    "CREATE VIEW files AS SELECT CASE"
    " WHEN e.dir IS NULL THEN CAST(e.name AS TEXT)"
    " WHEN d.path IS NOT NULL THEN d.path || e.name"
    " ELSE (WITH RECURSIVE up(id, path) AS ("
    "   SELECT e.dir, CAST(e.name AS TEXT)"
    "   UNION ALL"
    "   SELECT u.parent, CASE WHEN substr(u.name, -1) = '/'"
    "     THEN u.name || up.path ELSE u.name || '/' || up.path END"
    "   FROM up JOIN dirs u ON u.id = up.id)"
    "  SELECT path FROM up WHERE id IS NULL) END AS path, e.*"
    " FROM entries e LEFT JOIN dirs d ON d.id = e.dir;"
    "CREATE TEMP TABLE raw(id INTEGER PRIMARY KEY, parent INTEGER, name);"
    "CREATE TEMP TABLE numbers(id INTEGER PRIMARY KEY, number INTEGER);"
    "CREATE TEMP TABLE seen(dev INTEGER, ino INTEGER, PRIMARY KEY(dev, ino))"
    " WITHOUT ROWID;"
    "PRAGMA temp.cache_size=-1024;"
    "BEGIN;";

/* Directories depth first, each before those below it. */
static const char in_order[] =
    "WITH RECURSIVE t(id, level, name) AS ("
    " SELECT id, 0, name FROM raw WHERE parent IS NULL"
    " UNION ALL"
    " SELECT r.id, t.level + 1, r.name FROM t JOIN raw r ON r.parent = t.id"
    " ORDER BY 2 DESC, 3)"
    " SELECT id, level, name FROM t";

static const char indexes[] = "CREATE INDEX dirs_path ON dirs(path);"
                              "CREATE INDEX entries_dir ON entries(dir);"
                              "CREATE INDEX entries_size ON entries(size);"
                              "COMMIT;";

enum statement {
    RAW,
    ORDER,
    DIR,
    LAST,
    NUMBER,
    LOOKUP,
    SEEN,
    ENTRY,
    STATEMENTS
};

static const char *const texts[STATEMENTS] = {
    [RAW] = "INSERT OR IGNORE INTO raw VALUES(?,?,?)",
    [ORDER] = in_order,
    [DIR] = "INSERT INTO dirs VALUES(?,?,?,?,NULL)",
    [LAST] = "UPDATE dirs SET last = ?2 WHERE id = ?1",
    [NUMBER] = "INSERT INTO numbers VALUES(?,?)",
    [LOOKUP] = "SELECT number FROM numbers WHERE id = ?",
    [SEEN] = "INSERT OR IGNORE INTO seen VALUES(?,?)",
    [ENTRY] = "INSERT INTO entries VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
};

/* A directory on the way down. */
struct above {
    int64_t number;
    size_t path_len; /* with the slash behind */
};

struct import {
    const char *path;
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    struct above *stack;
    size_t depth, cap;
    struct poise_buf dir_path;
    int64_t count;      /* directories numbered */
    uint64_t dir;       /* the one looked up last, and */
    int64_t dir_number; /* its number */
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

/* Run a statement that returns nothing. */
static int done(struct import *im, sqlite3_stmt *statement)
{
    return sqlite3_step(statement) == SQLITE_DONE &&
                   sqlite3_reset(statement) == SQLITE_OK
               ? 0
               : failed(im, "write inventory");
}

/* First round: the directories. */
static int import_directory(const struct walk_row *row, void *arg)
{
    struct import *im = arg;
    sqlite3_stmt *to = im->statements[RAW];
    if (!row->id) {
        return 0;
    }
    sqlite3_bind_int64(to, 1, (int64_t)row->id);
    bind_dir(to, 2, row->dir);
    if (bind_name(to, 3, row) != SQLITE_OK) {
        return failed(im, "write inventory");
    }
    return done(im, to);
}

/* ---- numbers and paths -------------------------------------------------- */

/* Directories deeper than `level` have nothing more below them. */
static int climb(struct import *im, size_t level)
{
    int code = 0;
    while (im->depth > level && code == 0) {
        sqlite3_stmt *to = im->statements[LAST];
        sqlite3_bind_int64(to, 1, im->stack[--im->depth].number);
        sqlite3_bind_int64(to, 2, im->count);
        code = done(im, to);
    }
    im->dir_path.len = im->depth ? im->stack[im->depth - 1].path_len : 0;
    return code;
}

static int push(struct import *im)
{
    if (im->depth == im->cap) {
        size_t cap = im->cap ? 2 * im->cap : 64;
        struct above *more = poise_realloc(im->stack, cap, sizeof *more);
        if (!more) {
            return -ENOMEM;
        }
        im->stack = more;
        im->cap = cap;
    }
    im->stack[im->depth++] = (struct above){im->count, im->dir_path.len};
    return 0;
}

/* The row of `in_order` in hand. */
static int number_directory(struct import *im)
{
    sqlite3_stmt *from = im->statements[ORDER], *to = im->statements[DIR];
    int code = climb(im, (size_t)sqlite3_column_int64(from, 1));
    const void *name = sqlite3_column_blob(from, 2);
    struct poise_buf *path = &im->dir_path;
    poise_buf_append(path, name, (size_t)sqlite3_column_bytes(from, 2));
    if (path->len == 0 || path->data[path->len - 1] != '/') {
        poise_buf_putc(path, '/');
    }
    im->count++;
    if (code < 0 || path->error) {
        return code < 0 ? code : path->error;
    }
    sqlite3_bind_int64(to, 1, im->count);
    bind_dir(to, 2, im->depth ? (uint64_t)im->stack[im->depth - 1].number : 0);
    sqlite3_bind_value(to, 3, sqlite3_column_value(from, 2));
    if (path->len > SQLITE_PATH_MOST) {
        sqlite3_bind_null(to, 4);
    } else if (sqlite3_bind_text(to, 4, path->data, (int)path->len,
                                 SQLITE_STATIC) != SQLITE_OK) {
        return failed(im, "write inventory");
    }
    code = done(im, to);
    to = im->statements[NUMBER];
    if (code == 0) {
        sqlite3_bind_int64(to, 1, sqlite3_column_int64(from, 0));
        sqlite3_bind_int64(to, 2, im->count);
        code = done(im, to);
    }
    return code < 0 ? code : push(im);
}

static int number_directories(struct import *im)
{
    sqlite3_stmt *from = im->statements[ORDER];
    int step, code = 0;
    if (sqlite3_exec(im->db, "CREATE INDEX temp.raw_parent ON raw(parent)",
                     NULL, NULL, NULL) != SQLITE_OK) {
        return failed(im, "write inventory");
    }
    while (code == 0 && (step = sqlite3_step(from)) != SQLITE_DONE) {
        code = step == SQLITE_ROW ? number_directory(im)
                                  : failed(im, "write inventory");
    }
    sqlite3_reset(from);
    code = code < 0 ? code : climb(im, 0);
    if (code == 0 && sqlite3_exec(im->db, "DROP TABLE temp.raw", NULL, NULL,
                                  NULL) != SQLITE_OK) {
        code = failed(im, "write inventory");
    }
    return code;
}

/* ---- entries ------------------------------------------------------------ */

/* The number of the directory that holds the row; 0: an operand. */
static int find_number(struct import *im, const struct walk_row *row)
{
    sqlite3_stmt *get = im->statements[LOOKUP];
    if (row->dir == im->dir || !row->dir) {
        return 0;
    }
    sqlite3_bind_int64(get, 1, (int64_t)row->dir);
    if (sqlite3_step(get) != SQLITE_ROW) {
        sqlite3_reset(get);
        return poise_error_set(EBADMSG, "write inventory", im->path,
                               "the directory of '%.*s' is missing",
                               (int)row->name_len, row->name);
    }
    im->dir = row->dir;
    im->dir_number = sqlite3_column_int64(get, 0);
    sqlite3_reset(get);
    return 0;
}

/* Of the names of an inode one counts: 1; another one: 0. */
static int counts(struct import *im, const struct walk_row *row)
{
    sqlite3_stmt *to = im->statements[SEEN];
    if (row->nlink < 2 || S_ISDIR(row->mode)) {
        return 1;
    }
    sqlite3_bind_int64(to, 1, (int64_t)row->dev);
    sqlite3_bind_int64(to, 2, (int64_t)row->ino);
    int code = done(im, to);
    return code < 0 ? code : sqlite3_changes(im->db);
}

/* What stands behind the last dot of a regular file's name, unless that is its
 * first character. */
static int bind_suffix(sqlite3_stmt *to, int column, const struct walk_row *row)
{
    const char *dot =
        S_ISREG(row->mode) ? memrchr(row->name, '.', row->name_len) : NULL;
    if (!dot || dot == row->name) {
        return sqlite3_bind_null(to, column);
    }
    struct walk_row end = {.name = dot + 1};
    end.name_len = row->name_len - (size_t)(end.name - row->name);
    return bind_name(to, column, &end);
}

/* Second round: everything. */
static int import_row(const struct walk_row *row, void *arg)
{
    struct import *im = arg;
    sqlite3_stmt *to = im->statements[ENTRY];
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
        row->atime,
    };
    enum { FIRST = 4, NUMBERS = sizeof numbers / sizeof *numbers };
    int code = -poise_fault_check(POISE_FAULT_WRITE);
    if (code < 0) {
        return poise_error_set(-code, "write inventory", im->path, NULL);
    }
    code = find_number(im, row);
    int count = code < 0 ? code : counts(im, row);
    if (count < 0) {
        return count;
    }
    if (bind_dir(to, 1, row->dir ? (uint64_t)im->dir_number : 0) != SQLITE_OK ||
        bind_name(to, 2, row) != SQLITE_OK ||
        sqlite3_bind_text(to, 3, type, 1, SQLITE_STATIC) != SQLITE_OK ||
        bind_suffix(to, FIRST + NUMBERS, row) != SQLITE_OK) {
        return failed(im, "write inventory");
    }
    for (int i = 0; i < NUMBERS; i++) {
        sqlite3_bind_int64(to, FIRST + i, numbers[i]);
    }
    sqlite3_bind_int64(to, FIRST + NUMBERS + 1, count);
    return done(im, to);
}

/* ---- all of it ---------------------------------------------------------- */

static int import_part(struct import *im, const struct walk_part *part,
                       int (*each)(const struct walk_row *row, void *arg))
{
    int fd = poise_file_open(AT_FDCWD, part->path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    struct walk_blocks blocks = {
        .fd = fd, .path = part->path, .end = part->bytes};
    int code = walk_blocks_each(&blocks, each, im);
    close(fd);
    return code;
}

static int import_all(struct import *im, const struct walk_part *parts,
                      size_t count)
{
    int code = 0;
    if (sqlite3_exec(im->db, schema, NULL, NULL, NULL) != SQLITE_OK) {
        return failed(im, "write inventory");
    }
    for (size_t i = 0; i < STATEMENTS; i++) {
        if (sqlite3_prepare_v2(im->db, texts[i], -1, &im->statements[i],
                               NULL) != SQLITE_OK) {
            return failed(im, "write inventory");
        }
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        code = import_part(im, &parts[i], import_directory);
    }
    code = code < 0 ? code : number_directories(im);
    for (size_t i = 0; i < count && code == 0; i++) {
        code = import_part(im, &parts[i], import_row);
    }
    if (code == 0 &&
        sqlite3_exec(im->db, indexes, NULL, NULL, NULL) != SQLITE_OK) {
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
    for (size_t i = 0; i < STATEMENTS; i++) {
        sqlite3_finalize(im.statements[i]);
    }
    if (sqlite3_close(im.db) != SQLITE_OK && code == 0) {
        code = failed(&im, "write inventory");
    }
    free(im.stack);
    poise_buf_free(&im.dir_path);
    return code;
}
