/*
 * A tree and an inventory of it, as `poise walk -o` wrote it into an SQLite
 * database: what changed since.
 *
 * Both sides become rows of temporary tables on rank 0, which the database
 * sorts on disk, so that memory does not grow with them; then they are merged.
 * Their key is the path with NUL for the slash: what is below a directory
 * follows it at once, and is passed over where that is new, gone or something
 * else now.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

struct compare_inventory {
    const char *path;
    sqlite3 *db;
    sqlite3_stmt *insert[2]; /* what the inventory has, what the tree has */
};

static const char schema[] =
    "PRAGMA temp_store=FILE;"
    "PRAGMA cache_size=-2048;"
    "CREATE TEMP TABLE before(key BLOB, mode INTEGER, uid INTEGER,"
    " gid INTEGER, nlink INTEGER, size INTEGER, mtime INTEGER, ns INTEGER);"
    "CREATE TEMP TABLE now(key BLOB, mode INTEGER, uid INTEGER,"
    " gid INTEGER, nlink INTEGER, size INTEGER, mtime INTEGER, ns INTEGER);"
    "PRAGMA temp.cache_size=-2048;"
    "CREATE TEMP TABLE folders AS SELECT id, parent, name FROM main.dirs;"
    "CREATE INDEX temp.by_parent ON folders(parent);"
    "CREATE TEMP TABLE paths(id INTEGER PRIMARY KEY, path BLOB);"
    "INSERT INTO paths WITH RECURSIVE down(id, path) AS ("
    "  SELECT id, x'' FROM folders WHERE parent IS NULL"
    "  UNION ALL SELECT f.id, CAST(down.path || f.name || '/' AS BLOB)"
    "  FROM down JOIN folders f ON f.parent = down.id)"
    " SELECT id, path FROM down;"
    "BEGIN;";
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

bool compare_is_inventory(const char *path)
{
    char head[16] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool is = fd >= 0 && read(fd, head, sizeof head) == (ssize_t)sizeof head &&
              memcmp(head, "SQLite format 3", sizeof head) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return is;
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

static uint32_t mode_of_letter(const unsigned char *letter)
{
    static const char letters[] = "?pc?d?b?f?l?s???"; /* by S_IFMT >> 12 */
    const char *at = letter ? strchr(letters, letter[0]) : NULL;
    return at && *at ? (uint32_t)(at - letters) << 12 : 0;
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
            side.mode |= mode_of_letter(sqlite3_column_text(rows, 1));
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

int compare_inventory_open(const char *path, struct compare_inventory **out)
{
    static const char *const inserts[] = {
        "INSERT INTO temp.before VALUES(?,?,?,?,?,?,?,?)",
        "INSERT INTO temp.now VALUES(?,?,?,?,?,?,?,?)"};
    struct compare_inventory *inventory = poise_alloc(1, sizeof *inventory);
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
    int code = inventory ? 0 : -ENOMEM;
    if (code < 0) {
        return code;
    }
    inventory->path = path;
    if (sqlite3_open_v2(path, &inventory->db, flags, NULL) != SQLITE_OK) {
        code = failed(inventory);
    }
    code = code < 0 ? code : check_operands(inventory);
    if (code == 0 &&
        sqlite3_exec(inventory->db, schema, NULL, NULL, NULL) != SQLITE_OK) {
        code = failed(inventory);
    }
    for (int i = 0; i < 2 && code == 0; i++) {
        if (sqlite3_prepare_v2(inventory->db, inserts[i], -1,
                               &inventory->insert[i], NULL) != SQLITE_OK) {
            code = failed(inventory);
        }
    }
    code = code < 0 ? code : read_rows(inventory);
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
        code = merge_key(&m, order <= 0, order >= 0);
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
    poise_buf_free(&m.path);
    return code;
}
