/*
 * What changed between an inventory and its tree: rows of both are sorted by
 * directory and name, on disk. What is below a directory that is
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
    sqlite3_stmt *rows; /* of both, the inventory's first where both have it */
    bool more;
    /* The entry in hand. */
    int64_t folder;
    struct poise_buf name;
    struct poise_difference d; /* which side exists, and what it is */
    bool is_passed;            /* its folder, of which that is known: */
    int64_t asked;             /* -1: of none */
    struct poise_buf path;
};

/* Columns of a row. */
enum { FOLDER, NAME, WHOSE, SIDE };

static int advance(struct merge *m)
{
    int step = sqlite3_step(m->rows);
    m->more = step == SQLITE_ROW;
    return step == SQLITE_ROW || step == SQLITE_DONE
               ? 0
               : inventory_failed(m->inventory);
}

/* Whether the row is of the entry in hand. */
static bool is_same(const struct merge *m)
{
    size_t len = (size_t)sqlite3_column_bytes(m->rows, NAME);
    return sqlite3_column_int64(m->rows, FOLDER) == m->folder &&
           len == m->name.len &&
           (len == 0 ||
            memcmp(sqlite3_column_blob(m->rows, NAME), m->name.data, len) == 0);
}

/* The next entry, of the inventory, the tree or both. A path comes once in
 * each; not so where operands overlap. */
static int next_entry(struct merge *m)
{
    int code = 0;
    m->folder = sqlite3_column_int64(m->rows, FOLDER);
    poise_buf_reset(&m->name);
    poise_buf_append(&m->name, sqlite3_column_blob(m->rows, NAME),
                     (size_t)sqlite3_column_bytes(m->rows, NAME));
    m->d = (struct poise_difference){.other = ""};
    do {
        bool now = sqlite3_column_int(m->rows, WHOSE);
        struct poise_compare_side *side = now ? &m->d.b : &m->d.a;
        if (side->exists) {
            return poise_error_set(EINVAL, "compare with", m->inventory->path,
                                   "it is an inventory of more than one tree");
        }
        *side = inventory_side(m->rows, SIDE);
        code = m->name.error ? m->name.error : advance(m);
    } while (code == 0 && m->more && is_same(m));
    return code;
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

/* Whether its directory is passed over: 1, 0, or an error. */
static int is_passed(struct merge *m)
{
    int code = m->is_passed;
    if (m->folder != m->asked) {
        code = m->folder == FOLDER_NONE
                   ? 0
                   : folders_is_passed(m->inventory, m->folder);
        m->is_passed = code > 0;
        m->asked = m->folder;
    }
    return code;
}

/* What is below it is passed over, if it is a directory on either side. */
static int pass(struct merge *m)
{
    return S_ISDIR(m->d.a.mode) || S_ISDIR(m->d.b.mode)
               ? folders_pass(m->inventory, m->folder, m->name.data,
                              m->name.len)
               : 0;
}

static int put_path(struct merge *m)
{
    int code = 0;
    poise_buf_reset(&m->path);
    if (m->folder == FOLDER_NONE) {
        poise_buf_putc(&m->path, '.');
    } else {
        code = folders_path(m->inventory, m->folder, &m->path);
        poise_buf_append(&m->path, m->name.data, m->name.len);
    }
    m->d.path = poise_buf_str(&m->path);
    m->d.path_len = m->path.len;
    return code < 0 ? code : m->path.error;
}

static int merge_entry(struct merge *m)
{
    const unsigned whole =
        POISE_DIFFERS_MISSING | POISE_DIFFERS_EXTRA | POISE_DIFFERS_TYPE;
    struct poise_difference *d = &m->d;
    int code = is_passed(m);
    if (code != 0) {
        return code < 0 ? code : 0;
    }
    m->run->matched += d->a.exists && d->b.exists;
    d->kinds = !d->b.exists ? POISE_DIFFERS_MISSING
               : !d->a.exists
                   ? POISE_DIFFERS_EXTRA
                   : kinds_of(&d->a, &d->b, m->run->options->metadata);
    if (d->kinds == 0) {
        return 0;
    }
    code = d->kinds & whole ? pass(m) : 0;
    code = code < 0 ? code : put_path(m);
    return code < 0 ? code : compare_count(m->run, d);
}

int compare_inventory_check(struct compare_run *run)
{
    struct merge m = {.run = run, .inventory = run->inventory, .asked = -1};
    int code = inventory_prepare(
        m.inventory, "SELECT * FROM temp.rows ORDER BY folder, name, whose",
        &m.rows);
    code = code < 0 ? code : advance(&m);
    while (code == 0 && m.more &&
           !(run->options->first_only && run->differences > 0)) {
        code = next_entry(&m);
        code = code < 0 ? code : merge_entry(&m);
    }
    sqlite3_finalize(m.rows);
    poise_buf_free(&m.name);
    poise_buf_free(&m.path);
    return code;
}
