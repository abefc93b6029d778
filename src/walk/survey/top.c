/*
 * Top lists and counts per owner. A top list is a heap with the least of its
 * items in front, so most values are turned away by one comparison; ties are
 * broken by paths, so the list does not depend on the order of reading.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- top lists ---------------------------------------------------------- */

void walk_top_free(struct walk_top *top)
{
    for (size_t i = 0; i < top->count; i++) {
        free(top->items[i].path);
    }
    free(top->items);
    *top = (struct walk_top){.most = top->most};
}

static int path_order(const struct walk_top_item *x,
                      const struct walk_top_item *y)
{
    size_t len = x->path_len < y->path_len ? x->path_len : y->path_len;
    int order = len ? memcmp(x->path, y->path, len) : 0;
    if (order == 0) {
        order = (x->path_len > y->path_len) - (x->path_len < y->path_len);
    }
    return order;
}

/* Larger first; of equal ones the one with the smaller path. */
static int top_order(const void *a, const void *b)
{
    const struct walk_top_item *x = a, *y = b;
    if (x->value != y->value) {
        return x->value > y->value ? -1 : 1;
    }
    return path_order(x, y);
}

static void sift_down(struct walk_top *top, size_t at)
{
    struct walk_top_item *items = top->items;
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2; child++) {
            if (child < top->count &&
                top_order(&items[child], &items[least]) > 0) {
                least = child;
            }
        }
        if (least == at) {
            return;
        }
        struct walk_top_item keep = items[at];
        items[at] = items[least];
        items[least] = keep;
        at = least;
    }
}

static void sift_up(struct walk_top *top, size_t at)
{
    struct walk_top_item *items = top->items;
    while (at && top_order(&items[at], &items[(at - 1) / 2]) > 0) {
        struct walk_top_item keep = items[at];
        items[at] = items[(at - 1) / 2];
        items[(at - 1) / 2] = keep;
        at = (at - 1) / 2;
    }
}

static struct walk_top_item *same_key(const struct walk_top *top,
                                      const struct walk_top_item *item)
{
    if (!item->key[0] && !item->key[1]) {
        return NULL;
    }
    for (size_t i = 0; i < top->count; i++) {
        if (top->items[i].key[0] == item->key[0] &&
            top->items[i].key[1] == item->key[1]) {
            return &top->items[i];
        }
    }
    return NULL;
}

/* The same thing once more: the greater value, and the smallest of its names,
 * so that the list does not depend on who came first. */
static void put_again(struct walk_top *top, struct walk_top_item *old,
                      struct walk_top_item *item)
{
    if (path_order(item, old) < 0) {
        struct walk_top_item keep = *old;
        old->path = item->path;
        old->path_len = item->path_len;
        item->path = keep.path;
    }
    free(item->path);
    if (item->value > old->value) {
        old->value = item->value;
    }
    sift_down(top, (size_t)(old - top->items));
}

bool walk_top_admits_path(const struct walk_top *top, uint64_t value,
                          const char *path, size_t path_len)
{
    struct walk_top_item item = {
        .value = value, .path = (char *)path, .path_len = path_len};
    return walk_top_admits(top, value) &&
           (top->count < top->most || top_order(&item, &top->items[0]) < 0);
}

int walk_top_put(struct walk_top *top, struct walk_top_item item)
{
    struct walk_top_item *old = same_key(top, &item);
    if (old) {
        put_again(top, old, &item);
        return 0;
    }
    if (!walk_top_admits_path(top, item.value, item.path, item.path_len)) {
        free(item.path);
        return 0;
    }
    if (top->count == top->most) {
        free(top->items[0].path);
        top->items[0] = item;
        sift_down(top, 0);
        return 0;
    }
    if (top->count == top->cap) {
        size_t cap = top->cap ? 2 * top->cap : 16;
        struct walk_top_item *items =
            poise_realloc(top->items, cap, sizeof *items);
        if (!items) {
            free(item.path);
            return -ENOMEM;
        }
        top->items = items;
        top->cap = cap;
    }
    top->items[top->count] = item;
    sift_up(top, top->count++);
    return 0;
}

int walk_top_move(struct walk_top *to, struct walk_top *from)
{
    int code = 0;
    for (size_t i = 0; i < from->count; i++) {
        int put = walk_top_put(to, from->items[i]);
        code = code ? code : put;
    }
    from->count = 0;
    return code;
}

void walk_top_sort(struct walk_top *top)
{
    if (top->count) {
        qsort(top->items, top->count, sizeof *top->items, top_order);
    }
}

int walk_top_save(const struct walk_top *top, struct poise_buf *out)
{
    poise_buf_varint(out, top->count);
    for (size_t i = 0; i < top->count; i++) {
        const struct walk_top_item *item = &top->items[i];
        poise_buf_varint(out, item->value);
        poise_buf_varint(out, item->key[0]);
        poise_buf_varint(out, item->key[1]);
        poise_buf_blob(out, item->path, item->path_len);
    }
    return out->error;
}

int walk_top_load(struct walk_top *top, struct poise_reader *in)
{
    uint64_t count = poise_reader_varint(in);
    for (uint64_t i = 0; i < count && !in->error; i++) {
        struct walk_top_item item = {0};
        item.value = poise_reader_varint(in);
        item.key[0] = poise_reader_varint(in);
        item.key[1] = poise_reader_varint(in);
        const char *path = poise_reader_blob(in, &item.path_len);
        if (in->error) {
            break;
        }
        item.path = poise_alloc(item.path_len + 1, 1);
        if (!item.path) {
            return -ENOMEM;
        }
        if (item.path_len) {
            memcpy(item.path, path, item.path_len);
        }
        int code = walk_top_put(top, item);
        if (code < 0) {
            return code;
        }
    }
    return in->error;
}

/* ---- owners ------------------------------------------------------------- */

void walk_owners_free(struct walk_owners *owners)
{
    free(owners->items);
    free(owners->slots);
    *owners = (struct walk_owners){0};
}

static uint32_t *slot_of(const struct walk_owners *owners, uint32_t uid)
{
    size_t mask = owners->slot_count - 1;
    size_t slot = poise_hash_u64(uid + 1) & mask;
    while (owners->slots[slot] &&
           owners->items[owners->slots[slot] - 1].uid != uid) {
        slot = (slot + 1) & mask;
    }
    return &owners->slots[slot];
}

/* Room for one more; slots stay at most half full. */
static int reserve(struct walk_owners *owners)
{
    if (owners->count < owners->cap) {
        return 0;
    }
    size_t cap = owners->cap ? 2 * owners->cap : 8;
    struct poise_walk_owner *items =
        poise_realloc(owners->items, cap, sizeof *items);
    if (!items) {
        return -ENOMEM;
    }
    owners->items = items;
    uint32_t *slots = poise_alloc(2 * cap, sizeof *slots);
    if (!slots) {
        return -ENOMEM;
    }
    free(owners->slots);
    owners->slots = slots;
    owners->slot_count = 2 * cap;
    owners->cap = cap;
    for (size_t i = 0; i < owners->count; i++) {
        *slot_of(owners, items[i].uid) = (uint32_t)i + 1;
    }
    return 0;
}

int walk_owners_add(struct walk_owners *owners, uint32_t uid, uint64_t entries,
                    uint64_t allocated_bytes)
{
    /* Neighbours mostly belong to the same user, in one directory to one. */
    struct poise_walk_owner *owner = owners->items;
    if (!owners->count || owner->uid != uid) {
        int code = reserve(owners);
        if (code < 0) {
            return code;
        }
        uint32_t *slot = slot_of(owners, uid);
        if (!*slot) {
            owners->items[owners->count] =
                (struct poise_walk_owner){.uid = uid};
            *slot = (uint32_t)++owners->count;
        }
        owner = &owners->items[*slot - 1];
    }
    owner->entries += entries;
    owner->allocated_bytes += allocated_bytes;
    return 0;
}

int walk_owners_move(struct walk_owners *to, struct walk_owners *from)
{
    int code = 0;
    for (size_t i = 0; i < from->count && code == 0; i++) {
        const struct poise_walk_owner *owner = &from->items[i];
        code = walk_owners_add(to, owner->uid, owner->entries,
                               owner->allocated_bytes);
    }
    from->count = 0;
    if (from->slots) {
        memset(from->slots, 0, from->slot_count * sizeof *from->slots);
    }
    return code;
}

int walk_owners_save(const struct walk_owners *owners, struct poise_buf *out)
{
    poise_buf_varint(out, owners->count);
    for (size_t i = 0; i < owners->count; i++) {
        poise_buf_varint(out, owners->items[i].uid);
        poise_buf_varint(out, owners->items[i].entries);
        poise_buf_varint(out, owners->items[i].allocated_bytes);
    }
    return out->error;
}

int walk_owners_load(struct walk_owners *owners, struct poise_reader *in)
{
    uint64_t count = poise_reader_varint(in);
    for (uint64_t i = 0; i < count && !in->error; i++) {
        uint32_t uid = (uint32_t)poise_reader_varint(in);
        uint64_t entries = poise_reader_varint(in);
        uint64_t bytes = poise_reader_varint(in);
        int code = in->error ? 0 : walk_owners_add(owners, uid, entries, bytes);
        if (code < 0) {
            return code;
        }
    }
    return in->error;
}
