/*
 * A tree and an inventory of it, as `poise walk -o` wrote it: what changed
 * since. What is no SQLite database becomes a temporary one.
 *
 * Both sides become rows of temporary tables on rank 0, on disk, so that memory
 * does not grow with them: the number of a directory, a name, and what is known
 * of the entry.
 */
#include "inventory.h"
#include "walk/engine/engine.h"
#include "walk/survey/survey.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* `whose`: 0 the inventory's, 1 the tree's. */
static const char schema[] =
    "PRAGMA temp_store=FILE;"
    "PRAGMA cache_size=-1024;"
    "CREATE TEMP TABLE rows(folder INTEGER, name BLOB, whose INTEGER,"
    " mode INTEGER, uid INTEGER, gid INTEGER, nlink INTEGER, size INTEGER,"
    " mtime INTEGER, ns INTEGER);"
    "CREATE TEMP TABLE folders(number INTEGER PRIMARY KEY, parent INTEGER,"
    " name BLOB, passed INTEGER);"
    "PRAGMA temp.cache_size=-1024;";
/* The directories of a database, those above first: the root is the first one,
 * whatever it was called. */
static const char numbering[] =
    "CREATE TEMP TABLE named AS SELECT id, parent, name FROM main.dirs;"
    "CREATE INDEX temp.by_parent ON named(parent);"
    "CREATE TEMP TABLE numbers(number INTEGER PRIMARY KEY, id INTEGER);"
    "INSERT INTO numbers(id) WITH RECURSIVE down(id) AS ("
    "  SELECT id FROM named WHERE parent IS NULL"
    "  UNION ALL SELECT n.id FROM down JOIN named n ON n.parent = down.id)"
    " SELECT id FROM down;"
    "DROP TABLE named;"
    "CREATE UNIQUE INDEX temp.by_id ON numbers(id);"
    "INSERT INTO folders SELECT n.number, coalesce(p.number, 0),"
    "  CASE WHEN p.number IS NULL THEN x'' ELSE CAST(d.name AS BLOB) END, 0"
    " FROM numbers n JOIN main.dirs d ON d.id = n.id"
    " LEFT JOIN numbers p ON p.id = d.parent;";
/* Of a binary inventory, as of a database. */
static const char tables[] =
    "PRAGMA temp_store=FILE;"
    "PRAGMA cache_size=-1024;"
    "BEGIN;"
    "CREATE TABLE main.dirs(id INTEGER PRIMARY KEY, parent INTEGER, name BLOB);"
    "CREATE TABLE main.entries(dir INTEGER, name BLOB, type TEXT,"
    " mode INTEGER, uid INTEGER, gid INTEGER, nlink INTEGER, size INTEGER,"
    " mtime INTEGER, mtime_ns INTEGER);";
/* `type` is a letter, `mode` has no type. */
static const char everything[] =
    "SELECT n.number, CAST(e.name AS BLOB), e.type, e.mode, e.uid, e.gid,"
    " e.nlink, e.size, e.mtime, e.mtime_ns"
    " FROM main.entries e JOIN numbers n ON n.id = e.dir"
    " UNION ALL"
    " SELECT 0, x'', type, mode, uid, gid, nlink, size, mtime, mtime_ns"
    " FROM main.entries WHERE dir IS NULL";

/* ---- SQLite ------------------------------------------------------------- */

int inventory_failed(const struct compare_inventory *inventory)
{
    int code = sqlite3_errcode(inventory->db) & 0xff;
    return poise_error_set(code == SQLITE_FULL    ? ENOSPC
                           : code == SQLITE_NOMEM ? ENOMEM
                                                  : EBADMSG,
                           "read inventory", inventory->path, "%s",
                           sqlite3_errmsg(inventory->db));
}

int inventory_execute(struct compare_inventory *inventory, const char *sql)
{
    return sqlite3_exec(inventory->db, sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : inventory_failed(inventory);
}

int inventory_prepare(struct compare_inventory *inventory, const char *sql,
                      sqlite3_stmt **out)
{
    return sqlite3_prepare_v2(inventory->db, sql, -1, out, NULL) == SQLITE_OK
               ? 0
               : inventory_failed(inventory);
}

int inventory_step(struct compare_inventory *inventory, sqlite3_stmt *to)
{
    return sqlite3_step(to) == SQLITE_DONE && sqlite3_reset(to) == SQLITE_OK
               ? 0
               : inventory_failed(inventory);
}

/* ---- rows --------------------------------------------------------------- */

static int add_row(struct compare_inventory *inventory, int whose,
                   int64_t folder, const void *name, size_t len,
                   const struct poise_compare_side *s)
{
    sqlite3_stmt *to = inventory->insert;
    sqlite3_bind_int64(to, 1, folder);
    sqlite3_bind_blob(to, 2, len ? name : "", (int)len, SQLITE_STATIC);
    sqlite3_bind_int64(to, 3, whose);
    sqlite3_bind_int64(to, 4, s->mode);
    sqlite3_bind_int64(to, 5, s->uid);
    sqlite3_bind_int64(to, 6, s->gid);
    sqlite3_bind_int64(to, 7, s->nlink);
    sqlite3_bind_int64(to, 8, (int64_t)s->size_bytes);
    sqlite3_bind_int64(to, 9, s->mtime);
    sqlite3_bind_int64(to, 10, s->mtime_ns);
    return inventory_step(inventory, to);
}

static int add_path(struct compare_inventory *inventory, int whose,
                    const char *path, size_t len,
                    const struct poise_compare_side *s)
{
    const char *name;
    size_t name_len;
    int64_t folder;
    int code = folders_number(inventory, path, len, &folder, &name, &name_len);
    return code < 0 ? code
                    : add_row(inventory, whose, folder, name, name_len, s);
}

int compare_inventory_add(struct compare_inventory *inventory, const char *path,
                          size_t len, const struct poise_compare_side *s)
{
    bool root = len == 1 && path[0] == '.';
    return add_path(inventory, 1, path, root ? 0 : len, s);
}

int compare_inventory_put(struct compare_inventory *inventory, const char *path,
                          size_t len, const struct poise_compare_side *s)
{
    return add_path(inventory, 0, path, len, s);
}

struct poise_compare_side inventory_side(sqlite3_stmt *row, int first)
{
    return (struct poise_compare_side){
        .exists = true,
        .mode = (uint32_t)sqlite3_column_int64(row, first),
        .uid = (uint32_t)sqlite3_column_int64(row, first + 1),
        .gid = (uint32_t)sqlite3_column_int64(row, first + 2),
        .nlink = (uint32_t)sqlite3_column_int64(row, first + 3),
        .size_bytes = (uint64_t)sqlite3_column_int64(row, first + 4),
        .mtime = sqlite3_column_int64(row, first + 5),
        .mtime_ns = (uint32_t)sqlite3_column_int64(row, first + 6),
    };
}

static int read_rows(struct compare_inventory *inventory)
{
    sqlite3_stmt *rows = NULL;
    int code = 0, step = SQLITE_ERROR;
    if (sqlite3_prepare_v2(inventory->db, everything, -1, &rows, NULL) ==
        SQLITE_OK) {
        while (code == 0 && (step = sqlite3_step(rows)) == SQLITE_ROW) {
            struct poise_compare_side side = inventory_side(rows, 3);
            const unsigned char *letter = sqlite3_column_text(rows, 2);
            side.mode |= compare_mode_of_letter(letter ? (char)letter[0] : 0);
            code = add_row(inventory, 0, sqlite3_column_int64(rows, 0),
                           sqlite3_column_blob(rows, 1),
                           (size_t)sqlite3_column_bytes(rows, 1), &side);
        }
    }
    if (code == 0 && step != SQLITE_DONE) {
        code = inventory_failed(inventory);
    }
    sqlite3_finalize(rows);
    return code;
}

/* The operands that it lists must be one: the tree. */
static int check_operands(struct compare_inventory *inventory)
{
    sqlite3_stmt *row = NULL;
    int code = 0;
    if (sqlite3_prepare_v2(
            inventory->db,
            "SELECT count(*) FROM main.entries WHERE dir IS NULL", -1, &row,
            NULL) != SQLITE_OK ||
        sqlite3_step(row) != SQLITE_ROW) {
        code = inventory_failed(inventory);
    } else if (sqlite3_column_int64(row, 0) != 1) {
        code = poise_error_set(EINVAL, "compare with", inventory->path,
                               "it is an inventory of %lld operands, not of "
                               "one tree",
                               (long long)sqlite3_column_int64(row, 0));
    }
    sqlite3_finalize(row);
    return code;
}

/* ---- opening ------------------------------------------------------------ */

struct binary {
    struct compare_inventory *inventory;
    sqlite3_stmt *dir, *entry;
};

static void bind_id(sqlite3_stmt *to, int column, uint64_t id)
{
    if (id) {
        sqlite3_bind_int64(to, column, (int64_t)id);
    } else {
        sqlite3_bind_null(to, column);
    }
}

static int put_binary(const struct walk_row *row, void *arg)
{
    struct binary *binary = arg;
    sqlite3_stmt *to = binary->entry;
    char letter = walk_type_letter(row->mode);
    bind_id(to, 1, row->dir);
    sqlite3_bind_blob(to, 2, row->name_len ? row->name : "", (int)row->name_len,
                      SQLITE_STATIC);
    sqlite3_bind_text(to, 3, &letter, 1, SQLITE_STATIC);
    sqlite3_bind_int64(to, 4, row->mode & 07777);
    sqlite3_bind_int64(to, 5, row->uid);
    sqlite3_bind_int64(to, 6, row->gid);
    sqlite3_bind_int64(to, 7, (int64_t)row->nlink);
    sqlite3_bind_int64(to, 8, (int64_t)row->size_bytes);
    sqlite3_bind_int64(to, 9, row->mtime);
    sqlite3_bind_int64(to, 10, row->mtime_ns);
    int code = inventory_step(binary->inventory, to);
    if (code < 0 || !row->id) {
        return code;
    }
    sqlite3_bind_int64(binary->dir, 1, (int64_t)row->id);
    bind_id(binary->dir, 2, row->dir);
    sqlite3_bind_blob(binary->dir, 3, row->name_len ? row->name : "",
                      (int)row->name_len, SQLITE_STATIC);
    return inventory_step(binary->inventory, binary->dir);
}

/* As if it were a database. */
static int open_binary(struct compare_inventory *inventory)
{
    struct binary binary = {.inventory = inventory};
    int code = inventory_execute(inventory, tables);
    code = code < 0
               ? code
               : inventory_prepare(
                     inventory,
                     "INSERT INTO main.entries VALUES(?,?,?,?,?,?,?,?,?,?)",
                     &binary.entry);
    code = code < 0 ? code
                    : inventory_prepare(inventory,
                                        "INSERT INTO main.dirs VALUES(?,?,?)",
                                        &binary.dir);
    code = code < 0 ? code
                    : walk_inventory_read(inventory->path, put_binary, &binary);
    sqlite3_finalize(binary.entry);
    sqlite3_finalize(binary.dir);
    return code < 0 ? code : inventory_execute(inventory, "COMMIT");
}

/* Its rows into temp.rows. */
static int fill(struct compare_inventory *inventory,
                enum compare_inventory_kind kind)
{
    bool text = kind == COMPARE_CSV || kind == COMPARE_JSONL;
    int code = text ? 0 : check_operands(inventory);
    if (!text && code == 0) {
        code = inventory_execute(inventory, numbering);
    }
    code = code < 0 ? code : folders_begin(inventory);
    if (code < 0) {
        return code;
    }
    return text ? compare_inventory_text(inventory, inventory->path,
                                         kind == COMPARE_CSV)
                : read_rows(inventory);
}

int compare_inventory_open(const char *path, struct compare_inventory **out)
{
    enum compare_inventory_kind kind = compare_inventory_kind(path);
    struct compare_inventory *inventory = poise_alloc(1, sizeof *inventory);
    int code = inventory ? 0 : -ENOMEM;
    if (code < 0) {
        return code;
    }
    inventory->path = path;
    if (sqlite3_open_v2(kind == COMPARE_SQLITE ? path : "", &inventory->db,
                        SQLITE_OPEN_NOMUTEX |
                            (kind == COMPARE_SQLITE
                                 ? SQLITE_OPEN_READONLY
                                 : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE),
                        NULL) != SQLITE_OK) {
        code = inventory_failed(inventory);
    }
    if (code == 0 && kind == COMPARE_BINARY) {
        code = open_binary(inventory);
    }
    code = code < 0 ? code : inventory_execute(inventory, schema);
    code = code < 0 ? code : inventory_execute(inventory, "BEGIN");
    code = code < 0 ? code
                    : inventory_prepare(inventory,
                                        "INSERT INTO temp.rows "
                                        "VALUES(?,?,?,?,?,?,?,?,?,?)",
                                        &inventory->insert);
    code = code < 0 ? code : fill(inventory, kind);
    if (code < 0) {
        compare_inventory_close(inventory);
        return code;
    }
    *out = inventory;
    return 0;
}

void compare_inventory_close(struct compare_inventory *inventory)
{
    if (inventory) {
        sqlite3_finalize(inventory->insert);
        folders_end(inventory);
        sqlite3_close(inventory->db);
        free(inventory);
    }
}
