/*
 * Plans of data types: how they are normalised, and how data is packed,
 * unpacked and copied along them.
 */
#include <string.h>

#include "type.h"
#include "vrank/context/context.h"

/* The buffer between two types with gaps: stays in the first-level cache. */
#define CHUNK_BYTES 4096

/* ---- making ------------------------------------------------------------- */

struct type_node type_node_moved(const struct type_node *node, ptrdiff_t offset)
{
    struct type_node moved = *node;
    moved.offset += offset;
    return moved;
}

struct type_node type_node_loop(const struct type_node *child, size_t count,
                                ptrdiff_t stride)
{
    if (count == 0 || child->kind == TYPE_EMPTY) {
        return (struct type_node){.kind = TYPE_EMPTY};
    }
    if (count == 1) {
        return *child;
    }
    if (child->kind == TYPE_BLOCK && stride == (ptrdiff_t)child->size) {
        return (struct type_node){.kind = TYPE_BLOCK,
                                  .size = child->size * count,
                                  .offset = child->offset};
    }
    return (struct type_node){.kind = TYPE_LOOP,
                              .size = child->size * count,
                              .count = count,
                              .stride = stride,
                              .child = child};
}

struct type_node type_node_list(struct type_node *entries, size_t count)
{
    size_t kept = 0, bytes = 0;

    for (size_t i = 0; i < count; i++) {
        const struct type_node *entry = &entries[i];
        struct type_node *last = kept > 0 ? &entries[kept - 1] : NULL;
        if (entry->kind == TYPE_EMPTY) {
            continue;
        }
        if (last != NULL && last->kind == TYPE_BLOCK &&
            entry->kind == TYPE_BLOCK &&
            last->offset + (ptrdiff_t)last->size == entry->offset) {
            last->size += entry->size;
        } else {
            entries[kept] = *entry;
            entries[kept++].before = bytes;
        }
        bytes += entry->size;
    }
    if (kept == 0) {
        return (struct type_node){.kind = TYPE_EMPTY};
    }
    if (kept == 1) {
        return entries[0];
    }
    return (struct type_node){
        .kind = TYPE_LIST, .size = bytes, .count = kept, .child = entries};
}

/* ---- walking ------------------------------------------------------------ */

/* Where a walk is: bytes of data to pass over, and then to move. */
struct walk {
    char *packed;
    size_t skip, left;
    bool packs;             /* to `packed`, not from it */
    struct context *pinned; /* in which the last block lay */
};

/* The buffer goes on at `at`, which must be in memory. */
static __attribute__((noinline)) void walk_pin(struct walk *walk,
                                               const char *at)
{
    context_unpin(walk->pinned);
    walk->pinned = context_pin(at);
}

static inline void walk_reach(struct walk *walk, const char *at)
{
    if (__builtin_expect(context_covers(at), 0)) {
        walk_pin(walk, at);
    }
}

static inline void move(struct walk *walk, char *at, size_t bytes)
{
    walk_reach(walk, at);
    if (walk->packs) {
        memcpy(walk->packed, at, bytes);
    } else {
        memcpy(at, walk->packed, bytes);
    }
    walk->packed += bytes;
}

static void walk_block(const struct type_node *node, char *at,
                       struct walk *walk)
{
    size_t bytes = node->size - walk->skip;

    if (bytes > walk->left) {
        bytes = walk->left;
    }
    move(walk, at + walk->skip, bytes);
    walk->skip = 0;
    walk->left -= bytes;
}

/* Whole blocks of one size, `stride` apart; the size is a constant where this
 * is inlined, and the copy a load and a store. */
static inline __attribute__((always_inline)) void
move_strided(struct walk *walk, char *at, size_t count, ptrdiff_t stride,
             size_t bytes)
{
    char *packed = walk->packed;

    walk_reach(walk, at);
    if (walk->packs) {
        for (size_t i = 0; i < count; i++) {
            memcpy(packed, at, bytes);
            packed += bytes;
            at += stride;
        }
    } else {
        for (size_t i = 0; i < count; i++) {
            memcpy(at, packed, bytes);
            packed += bytes;
            at += stride;
        }
    }
    walk->packed = packed;
    walk->left -= count * bytes;
}

static void walk_whole_blocks(struct walk *walk, char *at, size_t count,
                              ptrdiff_t stride, size_t bytes)
{
    switch (bytes) {
    case 1:
        move_strided(walk, at, count, stride, 1);
        break;
    case 4:
        move_strided(walk, at, count, stride, 4);
        break;
    case 8:
        move_strided(walk, at, count, stride, 8);
        break;
    case 16:
        move_strided(walk, at, count, stride, 16);
        break;
    default:
        move_strided(walk, at, count, stride, bytes);
        break;
    }
}

/* Plans are as deep as types are nested, which the program decides. */
static void walk_node(const struct type_node *node, char *base,
                      struct walk *walk);

static void walk_loop(const struct type_node *node, char *at, struct walk *walk)
{
    const struct type_node *child = node->child;
    size_t size = child->size, i = walk->skip / size;

    walk->skip -= i * size;
    if (walk->skip > 0) {
        walk_node(child, at + (ptrdiff_t)i * node->stride, walk);
        i++;
    }
    if (child->kind == TYPE_BLOCK && walk->left >= size && i < node->count) {
        size_t whole = walk->left / size;
        if (whole > node->count - i) {
            whole = node->count - i;
        }
        walk_whole_blocks(walk,
                          at + (ptrdiff_t)i * node->stride + child->offset,
                          whole, node->stride, size);
        i += whole;
    }
    for (; i < node->count && walk->left > 0; i++) {
        walk_node(child, at + (ptrdiff_t)i * node->stride, walk);
    }
}

/* The last entry that begins at or before byte `skip` of the list. */
static size_t list_find(const struct type_node *node, size_t skip)
{
    size_t low = 0, high = node->count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (node->child[middle].before <= skip) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static void walk_list(const struct type_node *node, char *at, struct walk *walk)
{
    size_t i = 0;

    if (walk->skip > 0) {
        i = list_find(node, walk->skip);
        walk->skip -= node->child[i].before;
    }
    for (; i < node->count && walk->left > 0; i++) {
        const struct type_node *entry = &node->child[i];
        if (entry->kind == TYPE_BLOCK && walk->skip == 0 &&
            walk->left >= entry->size) {
            move(walk, at + entry->offset, entry->size);
            walk->left -= entry->size;
        } else {
            walk_node(entry, at, walk);
        }
    }
}

static void walk_node(const struct type_node *node, char *base,
                      struct walk *walk)
{
    char *at = base + node->offset;

    switch (node->kind) {
    case TYPE_EMPTY:
        break;
    case TYPE_BLOCK:
        walk_block(node, at, walk);
        break;
    case TYPE_LOOP:
        walk_loop(node, at, walk);
        break;
    case TYPE_LIST:
        walk_list(node, at, walk);
        break;
    }
}

static void walk_elements(const struct poise_mpi_datatype *type, size_t count,
                          char *buf, struct walk *walk)
{
    struct type_node all =
        type_node_loop(&type->root, count, type_extent(type));

    /* The packed form may lie in a context, too. */
    struct context *packed = context_pin(walk->packed);
    walk_node(&all, buf, walk);
    context_unpin(walk->pinned);
    context_unpin(packed);
}

/* ---- copying ------------------------------------------------------------ */

void type_pack(const struct poise_mpi_datatype *type, size_t count,
               const void *buf, size_t from, size_t bytes, void *out)
{
    if (bytes == 0) {
        return;
    }
    if (type->dense) {
        context_move(out, (const char *)buf + from, bytes);
        return;
    }
    /* Packing only reads from the buffer. */
    walk_elements(
        type, count, (char *)(uintptr_t)buf,
        &(struct walk){
            .packed = out, .skip = from, .left = bytes, .packs = true});
}

void type_unpack(const struct poise_mpi_datatype *type, size_t count, void *buf,
                 size_t from, size_t bytes, const void *in)
{
    if (bytes == 0) {
        return;
    }
    if (type->dense) {
        context_move((char *)buf + from, in, bytes);
        return;
    }
    walk_elements(type, count, buf,
                  &(struct walk){.packed = (char *)(uintptr_t)in,
                                 .skip = from,
                                 .left = bytes});
}

void type_copy(const struct poise_mpi_datatype *from_type, size_t from_count,
               const void *from, const struct poise_mpi_datatype *to_type,
               size_t to_count, void *to, size_t bytes)
{
    char chunk[CHUNK_BYTES];

    if (to_type->dense) {
        type_pack(from_type, from_count, from, 0, bytes, to);
        return;
    }
    if (from_type->dense) {
        type_unpack(to_type, to_count, to, 0, bytes, from);
        return;
    }
    for (size_t done = 0; done < bytes;) {
        size_t now = bytes - done < sizeof chunk ? bytes - done : sizeof chunk;
        type_pack(from_type, from_count, from, done, now, chunk);
        type_unpack(to_type, to_count, to, done, now, chunk);
        done += now;
    }
}
