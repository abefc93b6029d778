/*
 * What folders hold, down to such a depth that they are not too many.
 *
 * A row is a folder and an owner; a row whose folder lies deeper than `depth`
 * counts for the one above it at that depth. When there are more than
 * WALK_FOLDERS_MOST rows the depth becomes less by one. How deep all ranks
 * together get depends on the tree alone: whoever has a part of its rows never
 * has to give up more than all rows together do.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_SLOTS = 64, DEPTH = 8 };

void walk_folders_free(struct walk_folders *folders)
{
    for (size_t i = 0; i < folders->slot_count; i++) {
        free(folders->slots[i].path);
    }
    free(folders->slots);
    *folders = (struct walk_folders){0};
}

static uint32_t depth_of(const struct walk_folders *folders)
{
    return DEPTH - folders->lost;
}

/* So much of a path are its first `depth` names. */
static size_t cut(const char *path, size_t len, uint32_t depth)
{
    size_t at = 0;
    for (uint32_t i = 0; i < depth && at < len; i++) {
        const char *slash = memchr(path + at, '/', len - at);
        if (!slash) {
            return len;
        }
        at = (size_t)(slash - path) + 1;
    }
    return at > 0 && at < len ? at - 1 : at;
}

static struct poise_walk_folder *slot_of(const struct walk_folders *folders,
                                         const struct poise_walk_folder *what)
{
    size_t mask = folders->slot_count - 1;
    size_t at =
        (size_t)poise_hash_bytes(what->path, what->path_len,
                                 (uint64_t)what->uid << 32 | what->root) &
        mask;
    for (;; at = (at + 1) & mask) {
        struct poise_walk_folder *slot = &folders->slots[at];
        if (!slot->path ||
            (slot->uid == what->uid && slot->root == what->root &&
             slot->path_len == what->path_len &&
             memcmp(slot->path, what->path, what->path_len) == 0)) {
            return slot;
        }
    }
}

static void add_amounts(struct poise_walk_folder *to,
                        const struct poise_walk_folder *what)
{
    to->entries += what->entries;
    to->allocated_bytes += what->allocated_bytes;
    for (unsigned i = 0; i < POISE_WALK_FOLDER_AGES; i++) {
        to->age_bytes[i] += what->age_bytes[i];
    }
}

/* All rows into a table of `slot_count` slots, cut to the depth. */
static int rebuild(struct walk_folders *folders, size_t slot_count)
{
    struct walk_folders next = {.slot_count = slot_count,
                                .lost = folders->lost};
    next.slots = poise_alloc(slot_count, sizeof *next.slots);
    if (!next.slots) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < folders->slot_count; i++) {
        struct poise_walk_folder *from = &folders->slots[i];
        if (!from->path) {
            continue;
        }
        from->path_len = cut(from->path, from->path_len, depth_of(folders));
        from->path[from->path_len] = '\0';
        struct poise_walk_folder *to = slot_of(&next, from);
        if (to->path) {
            add_amounts(to, from);
            free(from->path);
        } else {
            *to = *from;
            next.count++;
        }
    }
    free(folders->slots);
    *folders = next;
    return 0;
}

int walk_folders_lose(struct walk_folders *folders, uint32_t lost)
{
    if (lost <= folders->lost || !folders->slots) {
        folders->lost = lost > folders->lost ? lost : folders->lost;
        return 0;
    }
    folders->lost = lost;
    return rebuild(folders, folders->slot_count);
}

int walk_folders_add(struct walk_folders *folders,
                     const struct poise_walk_folder *what)
{
    int code = 0;
    if (2 * folders->count >= folders->slot_count) {
        code = rebuild(folders, folders->slot_count ? 2 * folders->slot_count
                                                    : LEAST_SLOTS);
    }
    if (code < 0) {
        return code;
    }
    struct poise_walk_folder key = *what;
    key.path_len = cut(what->path, what->path_len, depth_of(folders));
    struct poise_walk_folder *slot = slot_of(folders, &key);
    if (!slot->path) {
        char *path = poise_alloc(key.path_len + 1, 1);
        if (!path) {
            return -ENOMEM;
        }
        if (key.path_len) {
            memcpy(path, what->path, key.path_len);
        }
        *slot = (struct poise_walk_folder){.path = path,
                                           .path_len = key.path_len,
                                           .root = key.root,
                                           .uid = key.uid};
        folders->count++;
    }
    add_amounts(slot, what);
    while (code == 0 && folders->count > WALK_FOLDERS_MOST &&
           depth_of(folders) > 0) {
        code = walk_folders_lose(folders, folders->lost + 1);
    }
    return code;
}

int walk_folders_move(struct walk_folders *to, struct walk_folders *from)
{
    int code = walk_folders_lose(to, from->lost);
    for (size_t i = 0; i < from->slot_count && code == 0; i++) {
        if (from->slots[i].path) {
            code = walk_folders_add(to, &from->slots[i]);
        }
    }
    walk_folders_free(from);
    return code;
}

int walk_folders_save(const struct walk_folders *folders, struct poise_buf *out)
{
    poise_buf_varint(out, folders->lost);
    poise_buf_varint(out, folders->count);
    for (size_t i = 0; i < folders->slot_count; i++) {
        const struct poise_walk_folder *row = &folders->slots[i];
        if (!row->path) {
            continue;
        }
        poise_buf_blob(out, row->path, row->path_len);
        poise_buf_varint(out, row->root);
        poise_buf_varint(out, row->uid);
        poise_buf_varint(out, row->entries);
        poise_buf_varint(out, row->allocated_bytes);
        for (unsigned k = 0; k < POISE_WALK_FOLDER_AGES; k++) {
            poise_buf_varint(out, row->age_bytes[k]);
        }
    }
    return out->error;
}

int walk_folders_load(struct walk_folders *folders, struct poise_reader *in)
{
    uint64_t lost = poise_reader_varint(in);
    uint64_t count = poise_reader_varint(in);
    int code = in->error || lost > DEPTH
                   ? -EBADMSG
                   : walk_folders_lose(folders, (uint32_t)lost);
    for (uint64_t i = 0; i < count && code == 0; i++) {
        struct poise_walk_folder row = {0};
        row.path = (char *)(uintptr_t)poise_reader_blob(in, &row.path_len);
        row.root = (uint32_t)poise_reader_varint(in);
        row.uid = (uint32_t)poise_reader_varint(in);
        row.entries = poise_reader_varint(in);
        row.allocated_bytes = poise_reader_varint(in);
        for (unsigned k = 0; k < POISE_WALK_FOLDER_AGES; k++) {
            row.age_bytes[k] = poise_reader_varint(in);
        }
        code = in->error ? in->error : walk_folders_add(folders, &row);
    }
    return code;
}

/* ---- which one an entry is in ------------------------------------------- */

/* The names from the operand (not among them) to `dir`, or to the one above it
 * that is as deep as counts. */
static int put_path(const struct poise_walk_dir *dir, uint32_t depth,
                    struct poise_buf *out)
{
    const char *names[DEPTH];
    uint32_t count = 0;
    while (dir && poise_walk_dir_depth(dir) > depth) {
        dir = poise_walk_dir_parent(dir);
    }
    for (; dir && poise_walk_dir_depth(dir) > 0;
         dir = poise_walk_dir_parent(dir)) {
        names[count++] = poise_walk_dir_name(dir);
    }
    while (count > 0) {
        poise_buf_puts(out, out->len ? "/" : "");
        poise_buf_puts(out, names[--count]);
    }
    return out->error;
}

int walk_folders_flush(struct walk_folders *folders,
                       struct walk_folder_run *run)
{
    int code = 0;
    if (run->sum.entries > 0) {
        run->sum.path = run->path.data;
        run->sum.path_len = run->path.len;
        code = walk_folders_add(folders, &run->sum);
    }
    run->sum = (struct poise_walk_folder){0};
    run->dir = NULL;
    return code;
}

int walk_folders_count(struct walk_folders *folders,
                       struct walk_folder_run *run,
                       const struct poise_walk_entry *entry, uint32_t uid,
                       uint64_t allocated_bytes, unsigned age)
{
    /* A directory's own blocks are its own. */
    bool is_folder = entry->type == DT_DIR;
    int code = 0;
    if (is_folder || run->dir != entry->dir || run->sum.uid != uid ||
        run->sum.root != entry->root) {
        code = walk_folders_flush(folders, run);
        poise_buf_reset(&run->path);
        int put = put_path(entry->dir, depth_of(folders), &run->path);
        code = code < 0 ? code : put;
        if (is_folder && entry->depth > 0 &&
            entry->depth <= depth_of(folders)) {
            poise_buf_puts(&run->path, run->path.len ? "/" : "");
            poise_buf_append(&run->path, entry->name, entry->name_len);
        }
        run->dir = is_folder ? NULL : entry->dir;
        run->sum.uid = uid;
        run->sum.root = entry->root;
    }
    run->sum.entries++;
    run->sum.allocated_bytes += allocated_bytes;
    run->sum.age_bytes[age] += allocated_bytes;
    return code < 0 ? code : run->path.error;
}

/* ---- the summary -------------------------------------------------------- */

static int by_path(const void *a, const void *b)
{
    const struct poise_walk_folder *x = a, *y = b;
    if (x->root != y->root) {
        return x->root < y->root ? -1 : 1;
    }
    int order = strcmp(x->path, y->path);
    return order ? order : (x->uid > y->uid) - (x->uid < y->uid);
}

void walk_folders_take(struct walk_folders *folders,
                       struct poise_walk_folder **out, size_t *count)
{
    size_t kept = 0;
    for (size_t i = 0; i < folders->slot_count; i++) {
        if (folders->slots[i].path) {
            folders->slots[kept++] = folders->slots[i];
        }
    }
    if (kept > 0) {
        qsort(folders->slots, kept, sizeof *folders->slots, by_path);
    }
    *out = folders->slots;
    *count = kept;
    *folders = (struct walk_folders){0};
}
