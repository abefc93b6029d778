/*
 * A tree and an inventory of it, as `poise walk -o` wrote it: what changed
 * since. What is no SQLite database becomes a temporary one.
 *
 * Both sides become rows of temporary tables on rank 0, which the database
 * sorts on disk, so that memory does not grow with them; then they are merged.
 * Their key is the path with NUL for the slash: what is below a directory
 * follows it at once, and is passed over where that is new, gone or something
 * else now.
 */
#include "internal.h"
#include "walk/engine/engine.h"
#include "walk/survey/survey.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct compare_inventory {
    const char *path;
    sqlite3 *db;
    sqlite3_stmt *insert[2]; /* what the inventory has, what the tree has */
};

#define ROW                                                                    \
    "(key BLOB, mode INTEGER, uid INTEGER, gid INTEGER, nlink INTEGER,"        \
    " size INTEGER, mtime INTEGER, ns INTEGER);"
static const char schema[] =
    "PRAGMA temp_store=FILE;"
    "PRAGMA cache_size=-2048;"
    "CREATE TEMP TABLE before" ROW "CREATE TEMP TABLE now" ROW
    "PRAGMA temp.cache_size=-2048;";
/* Where paths come from directories. */
static const char paths[] =
    "CREATE TEMP TABLE folders AS SELECT id, parent, name FROM main.dirs;"
    "CREATE INDEX temp.by_parent ON folders(parent);"
    "CREATE TEMP TABLE paths(id INTEGER PRIMARY KEY, path BLOB);"
    "INSERT INTO paths WITH RECURSIVE down(id, path) AS ("
    "  SELECT id, x'' FROM folders WHERE parent IS NULL"
    "  UNION ALL SELECT f.id, CAST(down.path || f.name || '/' AS BLOB)"
    "  FROM down JOIN folders f ON f.parent = down.id)"
    " SELECT id, path FROM down;";
/* Of a binary inventory, as of a database. */
static const char tables[] =
    "PRAGMA temp_store=FILE;"
    "PRAGMA cache_size=-2048;"
    "BEGIN;"
    "CREATE TABLE main.dirs(id INTEGER PRIMARY KEY, parent INTEGER, name BLOB);"
    "CREATE TABLE main.entries(dir INTEGER, name BLOB, type TEXT,"
    " mode INTEGER, uid INTEGER, gid INTEGER, nlink INTEGER, size INTEGER,"
    " mtime INTEGER, mtime_ns INTEGER);";
/* `type` is a letter, `mode` has no type. */
static const char everything[] =
    "SELECT CAST(p.path || e.name AS BLOB), e.type, e.mode, e.uid, e.gid,"
    " e.nlink, e.size, e.mtime, e.mtime_ns"
    " FROM main.entries e JOIN paths p ON p.id = e.dir"
    " UNION ALL"
    " SELECT x'', type, mode, uid, gid, nlink, size, mtime, mtime_ns"
    " FROM main.entries WHERE dir IS NULL";

static int failed(const struct compare_inventory *inventory)
{
    int code = sqlite3_errcode(inventory->db) & 0xff;
    return poise_error_set(code == SQLITE_FULL    ? ENOSPC
                           : code == SQLITE_NOMEM ? ENOMEM
                                                  : EBADMSG,
                           "read inventory", inventory->path, "%s",
                           sqlite3_errmsg(inventory->db));
}

enum compare_inventory_kind compare_inventory_kind(const char *path)
{
    static const struct {
        const char *begin;
        size_t len;
        enum compare_inventory_kind kind;
    } kinds[] = {
        {"SQLite format 3", 16, COMPARE_SQLITE},
        {"POISEINV", 8, COMPARE_BINARY},
        {"path,type,mode,uid", 18, COMPARE_CSV},
        {"{\"path\":", 8, COMPARE_JSONL},
    };
    char head[20] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    ssize_t got = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)
                      ? read(fd, head, sizeof head)
                      : -1;
    enum compare_inventory_kind kind = COMPARE_NO_INVENTORY;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (got >= (ssize_t)kinds[i].len &&
            memcmp(head, kinds[i].begin, kinds[i].len) == 0) {
            kind = kinds[i].kind;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return kind;
}

/* ---- rows --------------------------------------------------------------- */

static int add_row(struct compare_inventory *inventory, int side,
                   const char *path, size_t len,
                   const struct poise_compare_side *s)
{
    struct poise_buf key = {0};
    sqlite3_stmt *to = inventory->insert[side];
    poise_buf_append(&key, path, len);
    poise_buf_str(&key);
    if (key.error) {
        return key.error;
    }
    for (size_t i = 0; i < key.len; i++) {
        key.data[i] = key.data[i] == '/' ? '\0' : key.data[i];
    }
    sqlite3_bind_blob(to, 1, key.data, (int)key.len, SQLITE_STATIC);
    sqlite3_bind_int64(to, 2, s->mode);
    sqlite3_bind_int64(to, 3, s->uid);
    sqlite3_bind_int64(to, 4, s->gid);
    sqlite3_bind_int64(to, 5, s->nlink);
    sqlite3_bind_int64(to, 6, (int64_t)s->size_bytes);
    sqlite3_bind_int64(to, 7, s->mtime);
    sqlite3_bind_int64(to, 8, s->mtime_ns);
    int code = sqlite3_step(to) == SQLITE_DONE && sqlite3_reset(to) == SQLITE_OK
                   ? 0
                   : failed(inventory);
    poise_buf_free(&key);
    return code;
}

int compare_inventory_add(struct compare_inventory *inventory, const char *path,
                          size_t len, const struct poise_compare_side *s)
{
    bool root = len == 1 && path[0] == '.';
    return add_row(inventory, 1, path, root ? 0 : len, s);
}

int compare_inventory_put(struct compare_inventory *inventory, const char *path,
                          size_t len, const struct poise_compare_side *s)
{
    return add_row(inventory, 0, path, len, s);
}

uint32_t compare_mode_of_letter(char letter)
{
    static const char letters[] = "?pc?d?b?f?l?s???"; /* by S_IFMT >> 12 */
    const char *at = letter ? strchr(letters, letter) : NULL;
    return at ? (uint32_t)(at - letters) << 12 : 0;
}

/* What the inventory has, from the columns from `first` on. */
static struct poise_compare_side side_of(sqlite3_stmt *row, int first)
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
            struct poise_compare_side side = side_of(rows, 2);
            const unsigned char *letter = sqlite3_column_text(rows, 1);
            side.mode |= compare_mode_of_letter(letter ? (char)letter[0] : 0);
            code = add_row(inventory, 0, sqlite3_column_blob(rows, 0),
                           (size_t)sqlite3_column_bytes(rows, 0), &side);
        }
    }
    if (code == 0 && step != SQLITE_DONE) {
        code = failed(inventory);
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
        code = failed(inventory);
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

static int execute(struct compare_inventory *inventory, const char *sql)
{
    return sqlite3_exec(inventory->db, sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : failed(inventory);
}

static int prepare(struct compare_inventory *inventory, const char *sql,
                   sqlite3_stmt **out)
{
    return sqlite3_prepare_v2(inventory->db, sql, -1, out, NULL) == SQLITE_OK
               ? 0
               : failed(inventory);
}

struct binary {
    struct compare_inventory *inventory;
    sqlite3_stmt *dir, *entry;
};

static int step(struct compare_inventory *inventory, sqlite3_stmt *to)
{
    return sqlite3_step(to) == SQLITE_DONE && sqlite3_reset(to) == SQLITE_OK
               ? 0
               : failed(inventory);
}

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
    int code = step(binary->inventory, to);
    if (code < 0 || !row->id) {
        return code;
    }
    sqlite3_bind_int64(binary->dir, 1, (int64_t)row->id);
    bind_id(binary->dir, 2, row->dir);
    sqlite3_bind_blob(binary->dir, 3, row->name_len ? row->name : "",
                      (int)row->name_len, SQLITE_STATIC);
    return step(binary->inventory, binary->dir);
}

/* As if it were a database. */
static int open_binary(struct compare_inventory *inventory)
{
    struct binary binary = {.inventory = inventory};
    int code = execute(inventory, tables);
    code = code < 0
               ? code
               : prepare(inventory,
                         "INSERT INTO main.entries VALUES(?,?,?,?,?,?,?,?,?,?)",
                         &binary.entry);
    code = code < 0 ? code
                    : prepare(inventory, "INSERT INTO main.dirs VALUES(?,?,?)",
                              &binary.dir);
    code = code < 0 ? code
                    : walk_inventory_read(inventory->path, put_binary, &binary);
    sqlite3_finalize(binary.entry);
    sqlite3_finalize(binary.dir);
    return code < 0 ? code : execute(inventory, "COMMIT");
}

/* Its rows into temp.before. */
static int fill(struct compare_inventory *inventory,
                enum compare_inventory_kind kind)
{
    if (kind == COMPARE_CSV || kind == COMPARE_JSONL) {
        return compare_inventory_text(inventory, inventory->path,
                                      kind == COMPARE_CSV);
    }
    int code = check_operands(inventory);
    code = code < 0 ? code : execute(inventory, paths);
    return code < 0 ? code : read_rows(inventory);
}

int compare_inventory_open(const char *path, struct compare_inventory **out)
{
    static const char *const inserts[] = {
        "INSERT INTO temp.before VALUES(?,?,?,?,?,?,?,?)",
        "INSERT INTO temp.now VALUES(?,?,?,?,?,?,?,?)"};
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
        code = failed(inventory);
    }
    if (code == 0 && kind == COMPARE_BINARY) {
        code = open_binary(inventory);
    }
    code = code < 0 ? code : execute(inventory, schema);
    code = code < 0 ? code : execute(inventory, "BEGIN");
    for (int i = 0; i < 2 && code == 0; i++) {
        code = prepare(inventory, inserts[i], &inventory->insert[i]);
    }
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
        sqlite3_finalize(inventory->insert[0]);
        sqlite3_finalize(inventory->insert[1]);
        sqlite3_close(inventory->db);
        free(inventory);
    }
}

/* ---- the merge ---------------------------------------------------------- */

/* Both sides in the order of their keys. */
struct merge {
    struct compare_run *run;
    sqlite3_stmt *rows[2];
    bool more[2];
    struct poise_buf over; /* what is below this key is passed over */
    bool has_over;
    struct poise_buf path;
    struct poise_buf last; /* the inventory's key before */
    bool has_last;
};

static int advance(struct merge *m, int side)
{
    int step = sqlite3_step(m->rows[side]);
    m->more[side] = step == SQLITE_ROW;
    return step == SQLITE_ROW || step == SQLITE_DONE
               ? 0
               : failed(m->run->inventory);
}

static int compare_keys(struct merge *m)
{
    if (!m->more[0] || !m->more[1]) {
        return m->more[0] ? -1 : 1;
    }
    size_t len[2];
    const void *keys[2];
    for (int i = 0; i < 2; i++) {
        keys[i] = sqlite3_column_blob(m->rows[i], 0);
        len[i] = (size_t)sqlite3_column_bytes(m->rows[i], 0);
    }
    size_t least = len[0] < len[1] ? len[0] : len[1];
    int order = least ? memcmp(keys[0], keys[1], least) : 0;
    return order != 0 ? order : (len[0] > len[1]) - (len[0] < len[1]);
}

static bool is_passed_over(const struct merge *m, const char *key, size_t len)
{
    size_t over = m->over.len;
    return m->has_over && len > over &&
           (over == 0 ||
            (memcmp(key, m->over.data, over) == 0 && key[over] == '\0'));
}

static unsigned kinds_of(const struct poise_compare_side *a,
                         const struct poise_compare_side *b, unsigned wanted)
{
    unsigned kinds = 0;
    bool directory = (a->mode & S_IFMT) == S_IFDIR;
    if ((a->mode & S_IFMT) != (b->mode & S_IFMT)) {
        return POISE_DIFFERS_TYPE;
    }
    if (!directory && a->size_bytes != b->size_bytes) {
        kinds |= POISE_DIFFERS_CONTENT;
    }
    if (a->mode != b->mode) {
        kinds |= POISE_DIFFERS_MODE & wanted;
    }
    if (a->uid != b->uid || a->gid != b->gid) {
        kinds |= POISE_DIFFERS_OWNER & wanted;
    }
    if (a->mtime != b->mtime || a->mtime_ns != b->mtime_ns) {
        kinds |= POISE_DIFFERS_TIMES & wanted;
    }
    if (!directory && a->nlink != b->nlink) {
        kinds |= POISE_DIFFERS_LINKS & wanted;
    }
    return kinds;
}

/* A path comes once; not so where operands overlap. */
static int check_last(struct merge *m)
{
    const void *key = sqlite3_column_blob(m->rows[0], 0);
    size_t len = (size_t)sqlite3_column_bytes(m->rows[0], 0);
    if (m->has_last && m->last.len == len &&
        (len == 0 || memcmp(m->last.data, key, len) == 0)) {
        return poise_error_set(EINVAL, "compare with", m->run->inventory->path,
                               "it is an inventory of more than one tree");
    }
    poise_buf_reset(&m->last);
    m->has_last = true;
    return poise_buf_append(&m->last, key, len);
}

/* The next key, on one side or both. */
static int merge_key(struct merge *m, bool before, bool now)
{
    sqlite3_stmt *row = m->rows[before ? 0 : 1];
    const char *key = sqlite3_column_blob(row, 0);
    size_t len = (size_t)sqlite3_column_bytes(row, 0);
    struct poise_difference d = {.other = ""};
    if (before) {
        d.a = side_of(m->rows[0], 1);
    }
    if (now) {
        d.b = side_of(m->rows[1], 1);
    }
    if (is_passed_over(m, key, len)) {
        return 0;
    }
    m->has_over = false;
    m->run->matched += before && now;
    d.kinds = !now      ? POISE_DIFFERS_MISSING
              : !before ? POISE_DIFFERS_EXTRA
                        : kinds_of(&d.a, &d.b, m->run->options->metadata);
    if (d.kinds == 0) {
        return 0;
    }
    if (d.kinds &
        (POISE_DIFFERS_MISSING | POISE_DIFFERS_EXTRA | POISE_DIFFERS_TYPE)) {
        poise_buf_reset(&m->over);
        poise_buf_append(&m->over, key, len);
        m->has_over = true;
    }
    poise_buf_reset(&m->path);
    poise_buf_append(&m->path, len ? key : ".", len ? len : 1);
    d.path = poise_buf_str(&m->path);
    d.path_len = m->path.len;
    for (size_t i = 0; i < m->path.len && !m->path.error; i++) {
        m->path.data[i] = m->path.data[i] ? m->path.data[i] : '/';
    }
    int code = m->path.error ? m->path.error : m->over.error;
    return code < 0 ? code : compare_count(m->run, &d);
}

int compare_inventory_check(struct compare_run *run)
{
    static const char *const queries[] = {
        "SELECT * FROM temp.before ORDER BY key",
        "SELECT * FROM temp.now ORDER BY key"};
    struct merge m = {.run = run};
    sqlite3 *db = run->inventory->db;
    int code = 0;
    for (int i = 0; i < 2 && code == 0; i++) {
        code = sqlite3_prepare_v2(db, queries[i], -1, &m.rows[i], NULL) ==
                       SQLITE_OK
                   ? advance(&m, i)
                   : failed(run->inventory);
    }
    while (code == 0 && (m.more[0] || m.more[1]) &&
           !(run->options->first_only && run->differences > 0)) {
        int order = compare_keys(&m);
        code = order <= 0 ? check_last(&m) : 0;
        code = code < 0 ? code : merge_key(&m, order <= 0, order >= 0);
        if (code == 0 && order <= 0) {
            code = advance(&m, 0);
        }
        if (code == 0 && order >= 0) {
            code = advance(&m, 1);
        }
    }
    sqlite3_finalize(m.rows[0]);
    sqlite3_finalize(m.rows[1]);
    poise_buf_free(&m.over);
    poise_buf_free(&m.last);
    poise_buf_free(&m.path);
    return code;
}
