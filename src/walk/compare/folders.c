/*
 * Numbers of the directories that an inventory and its tree have, so that a row
 * has a name and not a path, which would make deep trees quadratic. Rows come
 * nearly in the order of a walk: of each path only what differs from the one
 * before is looked up.
 */
#include "inventory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const texts[FOLDER_STATEMENTS] = {
    [FOLDER_FIND] = "SELECT number FROM temp.folders WHERE parent=? AND name=?",
    [FOLDER_ADD] = "INSERT INTO temp.folders(parent, name) VALUES(?,?)",
    [FOLDER_ABOVE] = "SELECT parent, name FROM temp.folders WHERE number=?",
    [FOLDER_PASS] = "UPDATE temp.folders SET passed=1 WHERE parent=? AND "
                    "name=?",
    [FOLDER_INHERIT] =
        "UPDATE temp.folders SET passed=1 WHERE number=? AND"
        " (SELECT p.passed FROM temp.folders p WHERE p.number=folders.parent)",
    [FOLDER_IS_PASSED] = "SELECT passed FROM temp.folders WHERE number=?",
};

static int push(struct folder_way *way, int64_t number)
{
    if (way->count == way->cap) {
        size_t cap = way->cap ? 2 * way->cap : 64;
        struct folder_step *more = poise_realloc(way->steps, cap, sizeof *more);
        if (!more) {
            return -ENOMEM;
        }
        way->steps = more;
        way->cap = cap;
    }
    way->steps[way->count++] = (struct folder_step){number, way->path.len};
    return way->path.error;
}

int folders_begin(struct compare_inventory *inventory)
{
    int code = inventory_execute(
        inventory,
        "CREATE UNIQUE INDEX temp.folders_name ON folders(parent, name);"
        "INSERT OR IGNORE INTO temp.folders VALUES(1, 0, x'', 0);");
    for (int i = 0; i < FOLDER_STATEMENTS && code == 0; i++) {
        code = inventory_prepare(inventory, texts[i], &inventory->folders[i]);
    }
    code = code < 0 ? code : push(&inventory->in, FOLDER_ROOT);
    return code < 0 ? code : push(&inventory->out, FOLDER_ROOT);
}

void folders_end(struct compare_inventory *inventory)
{
    for (int i = 0; i < FOLDER_STATEMENTS; i++) {
        sqlite3_finalize(inventory->folders[i]);
    }
    poise_buf_free(&inventory->in.path);
    poise_buf_free(&inventory->out.path);
    free(inventory->in.steps);
    free(inventory->out.steps);
}

static void bind_name(sqlite3_stmt *to, int64_t parent, const void *name,
                      size_t len)
{
    sqlite3_bind_int64(to, 1, parent);
    sqlite3_bind_blob(to, 2, len ? name : "", (int)len, SQLITE_STATIC);
}

/* ---- from paths to numbers ---------------------------------------------- */

/* The number of a directory of `parent`; a new one if it has none. */
static int number_of(struct compare_inventory *inventory, int64_t parent,
                     const char *name, size_t len, int64_t *number)
{
    sqlite3_stmt *find = inventory->folders[FOLDER_FIND];
    sqlite3_stmt *add = inventory->folders[FOLDER_ADD];
    bind_name(find, parent, name, len);
    int step = sqlite3_step(find), code = 0;
    if (step == SQLITE_ROW) {
        *number = sqlite3_column_int64(find, 0);
    } else if (step != SQLITE_DONE) {
        code = inventory_failed(inventory);
    }
    sqlite3_reset(find);
    if (step == SQLITE_DONE) {
        bind_name(add, parent, name, len);
        code = inventory_step(inventory, add);
        *number = sqlite3_last_insert_rowid(inventory->db);
    }
    return code;
}

/* Go up to the last directory that the path before and this one share. */
static void go_up(struct folder_way *way, const char *path, size_t len)
{
    size_t most = way->path.len < len ? way->path.len : len, same = 0;
    while (same < most && way->path.data[same] == path[same]) {
        same++;
    }
    for (;;) {
        size_t end = way->steps[way->count - 1].end;
        if (way->count == 1 ||
            (end <= same && (end == len || path[end] == '/'))) {
            way->path.len = end;
            return;
        }
        way->count--;
    }
}

int folders_number(struct compare_inventory *inventory, const char *path,
                   size_t len, int64_t *number, const char **name,
                   size_t *name_len)
{
    struct folder_way *way = &inventory->in;
    const char *slash = len ? memrchr(path, '/', len) : NULL;
    size_t end = slash ? (size_t)(slash - path) : 0;
    *name = slash ? slash + 1 : path;
    *name_len = len - (size_t)(*name - path);
    *number = len ? FOLDER_ROOT : FOLDER_NONE;
    if (!slash) {
        return 0;
    }
    go_up(way, path, end);
    while (way->path.len < end) {
        size_t from = way->path.len + (way->count > 1);
        const char *next = memchr(path + from, '/', end - from);
        size_t to = next ? (size_t)(next - path) : end;
        int64_t here = FOLDER_NONE;
        int code = number_of(inventory, way->steps[way->count - 1].number,
                             path + from, to - from, &here);
        poise_buf_append(&way->path, path + way->path.len, to - way->path.len);
        code = code < 0 ? code : push(way, here);
        if (code < 0) {
            return code;
        }
    }
    *number = way->steps[way->count - 1].number;
    return 0;
}

/* ---- and back ----------------------------------------------------------- */

/* Its name, appended; the directory above. */
static int above(struct compare_inventory *inventory, int64_t number,
                 struct poise_buf *names, int64_t *parent)
{
    sqlite3_stmt *get = inventory->folders[FOLDER_ABOVE];
    sqlite3_bind_int64(get, 1, number);
    int code =
        sqlite3_step(get) == SQLITE_ROW ? 0 : inventory_failed(inventory);
    if (code == 0) {
        size_t len = (size_t)sqlite3_column_bytes(get, 1);
        *parent = sqlite3_column_int64(get, 0);
        poise_buf_append(names, sqlite3_column_blob(get, 1), len);
        poise_buf_u64(names, len); /* to be read from the end */
        poise_buf_u64(names, (uint64_t)number);
        code = names->error;
    }
    sqlite3_reset(get);
    return code;
}

int folders_path(struct compare_inventory *inventory, int64_t number,
                 struct poise_buf *out)
{
    struct folder_way *way = &inventory->out;
    struct poise_buf names = {0};
    int64_t at = number;
    int code = 0;
    while (code == 0) { /* numbers grow on the way down */
        while (way->count > 1 && way->steps[way->count - 1].number > at) {
            way->count--;
        }
        if (way->steps[way->count - 1].number >= at) {
            break;
        }
        code = above(inventory, at, &names, &at);
    }
    way->path.len = way->steps[way->count - 1].end;
    while (code == 0 && names.len > 0) {
        const char *tail = names.data + names.len - 16;
        size_t len = (size_t)poise_get_u64(tail);
        if (way->count > 1) {
            poise_buf_putc(&way->path, '/');
        }
        poise_buf_append(&way->path, tail - len, len);
        code = push(way, (int64_t)poise_get_u64(tail + 8));
        names.len -= len + 16;
    }
    poise_buf_free(&names);
    if (code == 0 && number > FOLDER_ROOT) {
        poise_buf_append(out, way->path.data, way->path.len);
        poise_buf_putc(out, '/');
    }
    return code < 0 ? code : out->error;
}

/* ---- what is passed over ------------------------------------------------ */

int folders_pass(struct compare_inventory *inventory, int64_t number,
                 const void *name, size_t len)
{
    sqlite3_stmt *pass = inventory->folders[FOLDER_PASS];
    bind_name(pass, number, name, len);
    return inventory_step(inventory, pass);
}

int folders_is_passed(struct compare_inventory *inventory, int64_t number)
{
    sqlite3_stmt *inherit = inventory->folders[FOLDER_INHERIT];
    sqlite3_stmt *get = inventory->folders[FOLDER_IS_PASSED];
    int code = 0;
    while (inventory->settled < number && code == 0) {
        sqlite3_bind_int64(inherit, 1, ++inventory->settled);
        code = inventory_step(inventory, inherit);
    }
    if (code < 0) {
        return code;
    }
    sqlite3_bind_int64(get, 1, number);
    code = sqlite3_step(get) == SQLITE_ROW ? sqlite3_column_int(get, 0)
                                           : inventory_failed(inventory);
    sqlite3_reset(get);
    return code;
}
