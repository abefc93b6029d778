/*
 * The widest among the directories that were read in pieces.
 *
 * How wide such a directory is nobody knows before all pieces are added up, on
 * the rank that its id's hash names; what it is called is known where a piece
 * was read. So every rank keeps the path of every directory of which it read a
 * piece. In the end the ids that are wide enough, however many are equal, go to
 * all ranks, each picks the first `top` of those that it can name, by width and
 * path, and rank 0 the first of these. Without paths equal ones could not be
 * told apart, and which of them are shown must not depend on who read what.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_SLOTS = 64, LEAST_PRUNED = 1024 };

/* ---- what directories are called ---------------------------------------- */

void walk_paths_free(struct walk_paths *paths)
{
    for (size_t i = 0; i < paths->slot_count; i++) {
        free(paths->slots[i].path);
    }
    free(paths->slots);
    *paths = (struct walk_paths){0};
}

/* Ids are never 0, which is a free slot's. */
static struct walk_path *slot_of(const struct walk_paths *paths, uint64_t id)
{
    size_t mask = paths->slot_count - 1;
    size_t at = poise_hash_u64(id) & mask;
    while (paths->slots[at].id != 0 && paths->slots[at].id != id) {
        at = (at + 1) & mask;
    }
    return &paths->slots[at];
}

static int make_room(struct walk_paths *paths)
{
    if (paths->count < paths->slot_count / 2) {
        return 0;
    }
    struct walk_paths larger = {
        .slot_count = paths->slot_count ? 2 * paths->slot_count : LEAST_SLOTS,
        .count = paths->count};
    larger.slots = poise_alloc(larger.slot_count, sizeof *larger.slots);
    if (!larger.slots) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < paths->slot_count; i++) {
        if (paths->slots[i].id != 0) {
            *slot_of(&larger, paths->slots[i].id) = paths->slots[i];
        }
    }
    free(paths->slots);
    *paths = larger;
    return 0;
}

int walk_paths_put(struct walk_paths *paths, uint64_t id, char *path,
                   size_t len)
{
    int code = id != 0 ? make_room(paths) : 0;
    struct walk_path *slot = code == 0 && id != 0 ? slot_of(paths, id) : NULL;
    if (!slot || slot->id != 0) {
        free(path);
        return code;
    }
    *slot = (struct walk_path){.id = id, .path = path, .len = len};
    paths->count++;
    return 0;
}

/* As the top list that they once were: value, key, path of each. */
int walk_paths_save(const struct walk_paths *paths, struct poise_buf *out)
{
    poise_buf_varint(out, paths->count);
    for (size_t i = 0; i < paths->slot_count; i++) {
        const struct walk_path *path = &paths->slots[i];
        if (path->id != 0) {
            poise_buf_varint(out, 0);
            poise_buf_varint(out, path->id);
            poise_buf_varint(out, 0);
            poise_buf_blob(out, path->path, path->len);
        }
    }
    return out->error;
}

int walk_paths_load(struct walk_paths *paths, struct poise_reader *in)
{
    uint64_t count = poise_reader_varint(in);
    int code = 0;
    for (uint64_t i = 0; i < count && !in->error && code == 0; i++) {
        poise_reader_varint(in);
        uint64_t id = poise_reader_varint(in);
        poise_reader_varint(in);
        size_t len = 0;
        const char *bytes = poise_reader_blob(in, &len);
        if (in->error) {
            break;
        }
        char *path = poise_alloc(len + 1, 1);
        if (!path) {
            return -ENOMEM;
        }
        if (len) {
            memcpy(path, bytes, len);
        }
        code = walk_paths_put(paths, id, path, len);
    }
    return code < 0 ? code : in->error;
}

/* ---- which are wide enough ---------------------------------------------- */

static int wider(const void *a, const void *b)
{
    const struct walk_width *x = a, *y = b;
    return (x->entries < y->entries) - (x->entries > y->entries);
}

/* Keep the `top` widest, and all that are as wide as the last of them. */
static void prune(struct walk_widths *widths)
{
    if (widths->count > widths->top) {
        qsort(widths->items, widths->count, sizeof *widths->items, wider);
        uint64_t last = widths->top > 0 ? widths->items[widths->top - 1].entries
                                        : UINT64_MAX;
        widths->least = last > widths->least ? last : widths->least;
    }
    size_t kept = 0;
    for (size_t i = 0; i < widths->count; i++) {
        if (widths->items[i].entries >= widths->least) {
            widths->items[kept++] = widths->items[i];
        }
    }
    widths->count = kept;
    widths->prune_at = 2 * kept > LEAST_PRUNED ? 2 * kept : LEAST_PRUNED;
}

int walk_widths_add(struct walk_widths *widths, uint64_t id, uint64_t entries)
{
    if (entries < widths->least) {
        return 0;
    }
    if (widths->count == widths->cap) {
        size_t cap = widths->cap ? 2 * widths->cap : LEAST_SLOTS;
        struct walk_width *items =
            poise_realloc(widths->items, cap, sizeof *items);
        if (!items) {
            return -ENOMEM;
        }
        widths->items = items;
        widths->cap = cap;
    }
    widths->items[widths->count++] =
        (struct walk_width){.id = id, .entries = entries};
    if (widths->count >= widths->prune_at && widths->prune_at > 0) {
        prune(widths);
    } else if (widths->prune_at == 0) {
        widths->prune_at = LEAST_PRUNED;
    }
    return 0;
}

int walk_widths_bound(struct poise_world *world, struct walk_widths *widths)
{
    prune(widths);
    int code =
        world ? poise_world_reduce(world, POISE_MAX, &widths->least, 1) : 0;
    prune(widths);
    return code;
}

void walk_widths_free(struct walk_widths *widths)
{
    free(widths->items);
    *widths = (struct walk_widths){.top = widths->top};
}

int walk_widths_save(const struct walk_widths *widths, struct poise_buf *out)
{
    for (size_t i = 0; i < widths->count; i++) {
        poise_buf_varint(out, widths->items[i].id);
        poise_buf_varint(out, widths->items[i].entries);
    }
    return out->error;
}

int walk_widths_load(struct walk_widths *widths, struct poise_reader *in)
{
    int code = 0;
    while (code == 0 && poise_reader_left(in) && !in->error) {
        uint64_t id = poise_reader_varint(in);
        uint64_t entries = poise_reader_varint(in);
        code = in->error ? in->error : walk_widths_add(widths, id, entries);
    }
    return code < 0 ? code : in->error;
}

int walk_widths_name(const struct walk_widths *widths,
                     const struct walk_paths *paths, struct walk_top *out)
{
    for (size_t i = 0; i < widths->count && paths->count > 0; i++) {
        const struct walk_width *width = &widths->items[i];
        const struct walk_path *known = slot_of(paths, width->id);
        if (known->id == 0 || !walk_top_admits_path(out, width->entries,
                                                    known->path, known->len)) {
            continue;
        }
        struct walk_top_item item = {.value = width->entries,
                                     .key = {width->id, 0},
                                     .path = poise_alloc(known->len + 1, 1),
                                     .path_len = known->len};
        if (!item.path) {
            return -ENOMEM;
        }
        memcpy(item.path, known->path, known->len);
        int code = walk_top_put(out, item);
        if (code < 0) {
            return code;
        }
    }
    return 0;
}
