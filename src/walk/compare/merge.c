/*
 * What changed between an inventory and its tree: rows of both are sorted by
 * directory and name, on disk, and merged. What is below a directory that is
 * new, gone or something else now is passed over; its number is greater, so it
 * comes later.
 */
#include "inventory.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct merge {
    struct compare_run *run;
    struct compare_inventory *inventory;
    sqlite3_stmt *rows[2];
    bool more[2];
    int64_t folder; /* of the row before; -1: there was none */
    bool is_passed; /* that folder */
    struct poise_buf path;
    struct poise_buf last; /* the inventory's name before, */
    int64_t last_folder;   /* in this one */
};

/* Columns of a row. */
enum { FOLDER, NAME, SIDE };

static int64_t folder_of(sqlite3_stmt *row)
{
    return sqlite3_column_int64(row, FOLDER);
}

static int advance(struct merge *m, int side)
{
    int step = sqlite3_step(m->rows[side]);
    m->more[side] = step == SQLITE_ROW;
    return step == SQLITE_ROW || step == SQLITE_DONE
               ? 0
               : inventory_failed(m->inventory);
}

static int compare_keys(struct merge *m)
{
    if (!m->more[0] || !m->more[1]) {
        return m->more[0] ? -1 : 1;
    }
    int64_t a = folder_of(m->rows[0]), b = folder_of(m->rows[1]);
    if (a != b) {
        return a < b ? -1 : 1;
    }
    size_t len[2];
    const void *names[2];
    for (int i = 0; i < 2; i++) {
        names[i] = sqlite3_column_blob(m->rows[i], NAME);
        len[i] = (size_t)sqlite3_column_bytes(m->rows[i], NAME);
    }
    size_t least = len[0] < len[1] ? len[0] : len[1];
    int order = least ? memcmp(names[0], names[1], least) : 0;
    return order != 0 ? order : (len[0] > len[1]) - (len[0] < len[1]);
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
    const void *name = sqlite3_column_blob(m->rows[0], NAME);
    size_t len = (size_t)sqlite3_column_bytes(m->rows[0], NAME);
    int64_t folder = folder_of(m->rows[0]);
    if (m->last_folder == folder && m->last.len == len &&
        (len == 0 || memcmp(m->last.data, name, len) == 0)) {
        return poise_error_set(EINVAL, "compare with", m->inventory->path,
                               "it is an inventory of more than one tree");
    }
    poise_buf_reset(&m->last);
    m->last_folder = folder;
    return poise_buf_append(&m->last, name, len);
}

/* Whether the row's directory is passed over: 1, 0, or an error. */
static int is_passed(struct merge *m, sqlite3_stmt *row)
{
    int64_t folder = folder_of(row);
    int code = m->is_passed;
    if (folder != m->folder) {
        code =
            folder == FOLDER_NONE ? 0 : folders_is_passed(m->inventory, folder);
        m->is_passed = code > 0;
        m->folder = folder;
    }
    return code;
}

/* What is below the row is passed over, if it is a directory on either side. */
static int pass(struct merge *m, sqlite3_stmt *row,
                const struct poise_difference *d)
{
    if (!S_ISDIR(d->a.mode) && !S_ISDIR(d->b.mode)) {
        return 0;
    }
    return folders_pass(m->inventory, folder_of(row),
                        sqlite3_column_blob(row, NAME),
                        (size_t)sqlite3_column_bytes(row, NAME));
}

/* Its path, in d. */
static int put_path(struct merge *m, sqlite3_stmt *row,
                    struct poise_difference *d)
{
    int code = 0;
    poise_buf_reset(&m->path);
    if (folder_of(row) == FOLDER_NONE) {
        poise_buf_putc(&m->path, '.');
    } else {
        code = folders_path(m->inventory, folder_of(row), &m->path);
        poise_buf_append(&m->path, sqlite3_column_blob(row, NAME),
                         (size_t)sqlite3_column_bytes(row, NAME));
    }
    d->path = poise_buf_str(&m->path);
    d->path_len = m->path.len;
    return code < 0 ? code : m->path.error;
}

/* The next key, on one side or both. */
static int merge_key(struct merge *m, bool before, bool now)
{
    sqlite3_stmt *row = m->rows[before ? 0 : 1];
    struct poise_difference d = {.other = ""};
    int code = is_passed(m, row);
    if (before) {
        d.a = inventory_side(m->rows[0], SIDE);
    }
    if (now) {
        d.b = inventory_side(m->rows[1], SIDE);
    }
    if (code != 0) {
        return code < 0 ? code : 0;
    }
    m->run->matched += before && now;
    d.kinds = !now      ? POISE_DIFFERS_MISSING
              : !before ? POISE_DIFFERS_EXTRA
                        : kinds_of(&d.a, &d.b, m->run->options->metadata);
    if (d.kinds == 0) {
        return 0;
    }
    if (d.kinds &
        (POISE_DIFFERS_MISSING | POISE_DIFFERS_EXTRA | POISE_DIFFERS_TYPE)) {
        code = pass(m, row, &d);
    }
    code = code < 0 ? code : put_path(m, row, &d);
    return code < 0 ? code : compare_count(m->run, &d);
}

int compare_inventory_check(struct compare_run *run)
{
    static const char *const queries[] = {
        "SELECT * FROM temp.before ORDER BY folder, name",
        "SELECT * FROM temp.now ORDER BY folder, name"};
    struct merge m = {.run = run,
                      .inventory = run->inventory,
                      .folder = -1,
                      .last_folder = -1};
    int code = 0;
    for (int i = 0; i < 2 && code == 0; i++) {
        code = inventory_prepare(m.inventory, queries[i], &m.rows[i]);
        code = code < 0 ? code : advance(&m, i);
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
    poise_buf_free(&m.last);
    poise_buf_free(&m.path);
    return code;
}
