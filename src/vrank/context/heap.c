/*
 * A heap in a range of addresses: see heap.h.
 *
 * A block begins with a word: its size, a multiple of 16, whether it is free
 * and whether the one before it is. What is allocated follows, at a multiple
 * of 16. A free block has links to others of its list behind the word, and
 * once more its size in its last word, where the block after it finds it.
 */
#include "heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOCK_FREE = 1, BLOCK_AFTER_FREE = 2, BLOCK_FLAGS = 15 };

#define BLOCK_LEAST ((size_t)32)
#define HEAD_BYTES sizeof(size_t)
#define PAGE_BYTES ((size_t)4096)
/** Free blocks within which no whole page may be need not be looked at. */
#define EXTENT_LEAST ((size_t)64 << 10)
/** Blocks of one list that are looked at before a larger list is. */
#define LIST_LOOKS 64

/** What begins a block: `word` lies 8 bytes below a multiple of 16. */
struct heap_free {
    size_t word;
    struct heap_free *next, *prev; /**< of free ones only */
};

static size_t block_size(const struct heap_free *block)
{
    return block->word & ~(size_t)BLOCK_FLAGS;
}

static struct heap_free *block_at(const struct heap *heap, size_t offset)
{
    return (struct heap_free *)(void *)(heap->base + offset);
}

static size_t block_offset(const struct heap *heap,
                           const struct heap_free *block)
{
    return (size_t)((const char *)block - heap->base);
}

static struct heap_free *block_of(const void *ptr)
{
    return (struct heap_free *)((uintptr_t)ptr - HEAD_BYTES);
}

static void *block_data(struct heap_free *block)
{
    return (char *)block + HEAD_BYTES;
}

/** The block after it; NULL at the top. */
static struct heap_free *block_next(const struct heap *heap,
                                    const struct heap_free *block)
{
    size_t offset = block_offset(heap, block) + block_size(block);
    return offset < heap->top ? block_at(heap, offset) : NULL;
}

static struct heap_free *block_before(const struct heap *heap,
                                      const struct heap_free *block)
{
    size_t offset = block_offset(heap, block);
    size_t size =
        *(const size_t *)(const void *)(heap->base + offset - sizeof(size_t));
    return block_at(heap, offset - size);
}

/* ---- lists of free blocks ----------------------------------------------- */

static void list_of(size_t size, int *first, int *second)
{
    *first = 63 - __builtin_clzl(size);
    *second = (int)(size >> (*first - 4) & (HEAP_SECOND - 1));
}

/* The whole units inside a free block. */
static size_t drop_range(const struct heap *heap, const struct heap_free *block,
                         size_t *from)
{
    size_t start = block_offset(heap, block), size = block_size(block);
    size_t low = (start + sizeof *block + heap->unit - 1) & ~(heap->unit - 1);
    size_t high = (start + size - sizeof(size_t)) & ~(heap->unit - 1);
    *from = low;
    return size >= heap->drop && high > low ? high - low : 0;
}

/* Put a free block into its list. Its memory, if there is much of it, is given
 * back, unless it has `none`. */
static void list_add(struct heap *heap, struct heap_free *block, bool none)
{
    size_t size = block_size(block), from;
    int first, second;

    heap->changes += size >= EXTENT_LEAST;
    list_of(size, &first, &second);
    struct heap_free **list = &heap->lists[first][second];
    block->prev = NULL;
    block->next = *list;
    if (*list != NULL) {
        (*list)->prev = block;
    }
    *list = block;
    heap->first |= UINT64_C(1) << first;
    heap->second[first] |= 1u << second;
    size_t bytes = drop_range(heap, block, &from);
    if (bytes > 0 && !none) {
        madvise(heap->base + from, bytes, MADV_DONTNEED);
        heap->drops++;
    }
    heap->held -= bytes;
}

/* Take a block out of its list; what it gave back it may use again. */
static void list_remove(struct heap *heap, struct heap_free *block)
{
    size_t from;
    int first, second;

    heap->changes += block_size(block) >= EXTENT_LEAST;
    heap->held += drop_range(heap, block, &from);
    list_of(block_size(block), &first, &second);
    if (block->next != NULL) {
        block->next->prev = block->prev;
    }
    if (block->prev != NULL) {
        block->prev->next = block->next;
    } else {
        heap->lists[first][second] = block->next;
    }
    if (heap->lists[first][second] == NULL) {
        heap->second[first] &= ~(1u << second);
        if (heap->second[first] == 0) {
            heap->first &= ~(UINT64_C(1) << first);
        }
    }
}

/* A free block of at least `size` bytes, still in its list, or NULL. */
static struct heap_free *list_find(const struct heap *heap, size_t size)
{
    int first, second;

    list_of(size, &first, &second);
    struct heap_free *block = heap->lists[first][second];
    for (int i = 0; block != NULL && i < LIST_LOOKS; i++) {
        if (block_size(block) >= size) {
            return block;
        }
        block = block->next;
    }
    /* All in the lists behind are large enough. */
    uint32_t seconds = heap->second[first] & ~((2u << second) - 1);
    if (seconds == 0) {
        uint64_t firsts = heap->first & ~((UINT64_C(2) << first) - 1);
        if (firsts == 0) {
            return NULL;
        }
        first = __builtin_ctzl(firsts);
        seconds = heap->second[first];
    }
    return heap->lists[first][__builtin_ctz(seconds)];
}

/* ---- blocks ------------------------------------------------------------- */

/* Say that a block is in use, or free, to itself and to the next one. */
static void block_mark(struct heap *heap, struct heap_free *block, size_t size,
                       bool is_free)
{
    block->word = size | (block->word & BLOCK_AFTER_FREE) |
                  (is_free ? (size_t)BLOCK_FREE : 0);
    struct heap_free *next = block_next(heap, block);
    if (is_free) {
        *(size_t *)(void *)((char *)block + size - sizeof(size_t)) = size;
    }
    if (next != NULL) {
        next->word = is_free ? next->word | BLOCK_AFTER_FREE
                             : next->word & ~(size_t)BLOCK_AFTER_FREE;
    }
}

/* The top goes up or down. */
static void heap_set_top(struct heap *heap, size_t top)
{
    size_t reach = (top + heap->unit - 1) & ~(heap->unit - 1);

    if (reach > heap->reach) {
        heap->held += reach - heap->reach;
        heap->reach = reach;
    } else if (heap->reach - reach >= heap->drop) {
        madvise(heap->base + reach, heap->reach - reach, MADV_DONTNEED);
        heap->held -= heap->reach - reach;
        heap->reach = reach;
        heap->drops++;
    }
    heap->top = top;
    heap->changes++;
    heap->fresh = top > heap->fresh ? top : heap->fresh;
}

/* Report how much memory the heap holds now. False: there is not so much. */
static bool heap_sync(struct heap *heap)
{
    if (heap->held > heap->charged) {
        if (!heap->take(heap->arg, heap->held - heap->charged)) {
            return false;
        }
    } else if (heap->held < heap->charged) {
        heap->give(heap->arg, heap->charged - heap->held);
    }
    heap->charged = heap->held;
    return true;
}

/* A block that is in no list becomes free: it joins its neighbours, or goes
 * with the top. `none`: there is no memory in it. */
static void block_free(struct heap *heap, struct heap_free *block, bool none)
{
    size_t size = block_size(block);
    struct heap_free *next = block_next(heap, block);

    if (next != NULL && (next->word & BLOCK_FREE) != 0) {
        list_remove(heap, next);
        size += block_size(next);
    }
    if ((block->word & BLOCK_AFTER_FREE) != 0) {
        block = block_before(heap, block);
        list_remove(heap, block);
        size += block_size(block);
    }
    size_t offset = block_offset(heap, block);
    if (offset + size == heap->top) {
        heap_set_top(heap, offset);
        return;
    }
    block_mark(heap, block, size, true);
    list_add(heap, block, none);
}

/* Cut a block in use down to `size`; the rest becomes free. */
static void block_cut(struct heap *heap, struct heap_free *block, size_t size,
                      bool none)
{
    size_t rest = block_size(block) - size;

    if (rest < BLOCK_LEAST) {
        return;
    }
    struct heap_free *after = block_at(heap, block_offset(heap, block) + size);
    block->word = size | (block->word & BLOCK_FLAGS);
    after->word = rest;
    block_free(heap, after, none);
}

static size_t size_for(size_t bytes)
{
    size_t size = (bytes + HEAD_BYTES + 15) & ~(size_t)15;
    return size < BLOCK_LEAST ? BLOCK_LEAST : size;
}

void heap_init(struct heap *heap)
{
    /* The first word lies 8 bytes below a multiple of 16. */
    heap->top = 16 - HEAD_BYTES;
    heap->drop = 2 * heap->unit > EXTENT_LEAST ? 2 * heap->unit : EXTENT_LEAST;
}

/* A block of this size, in use, for which there need not be memory yet. */
static struct heap_free *block_get(struct heap *heap, size_t size)
{
    struct heap_free *block = list_find(heap, size);

    if (block != NULL) {
        size_t whole = block_size(block);
        list_remove(heap, block);
        block_mark(heap, block, whole, false);
        block_cut(heap, block, size, whole >= heap->drop);
        return block;
    }
    size_t at = heap->top;
    if (size > heap->bytes - at) {
        return NULL;
    }
    heap_set_top(heap, at + size);
    block = block_at(heap, at);
    block->word = size;
    return block;
}

void *heap_alloc(struct heap *heap, size_t align, size_t bytes)
{
    if (bytes > heap->bytes || align > heap->bytes) {
        return NULL;
    }
    size_t size = size_for(bytes);
    bool moves = align > 16;
    struct heap_free *block =
        block_get(heap, moves ? size + align + BLOCK_LEAST : size);
    if (block == NULL) {
        return NULL;
    }
    uintptr_t data = (uintptr_t)block_data(block);
    if (moves && (data & (align - 1)) != 0) {
        /* What lies before becomes a free block of its own. */
        uintptr_t to = (data + BLOCK_LEAST + align - 1) & ~(align - 1);
        size_t front = to - data, whole = block_size(block);
        struct heap_free *before = block;
        block = block_of((const void *)to);
        block->word = whole - front;
        before->word = front | (before->word & BLOCK_FLAGS);
        block_free(heap, before, false);
    }
    if (moves) {
        block_cut(heap, block, size, false);
    }
    if (!heap_sync(heap)) {
        block_free(heap, block, false);
        heap_sync(heap);
        return NULL;
    }
    heap->allocated += block_size(block);
    return block_data(block);
}

void *heap_alloc_zero(struct heap *heap, size_t align, size_t bytes)
{
    size_t fresh = heap->fresh;
    char *data = heap_alloc(heap, align, bytes);

    if (data != NULL && (size_t)(data - heap->base) < fresh) {
        size_t used = fresh - (size_t)(data - heap->base);
        memset(data, 0, used < bytes ? used : bytes);
    }
    return data;
}

size_t heap_usable(const void *ptr)
{
    return block_size(block_of(ptr)) - HEAD_BYTES;
}

void heap_release(struct heap *heap, void *ptr)
{
    struct heap_free *block = block_of(ptr);

    heap->allocated -= block_size(block);
    block_free(heap, block, false);
    heap_sync(heap);
}

/* Make a block longer where it is: whether there was room. */
static bool block_stretch(struct heap *heap, struct heap_free *block,
                          size_t size)
{
    struct heap_free *next = block_next(heap, block);
    size_t now = block_size(block), offset = block_offset(heap, block);

    if (next == NULL) {
        if (size > heap->bytes - offset) {
            return false;
        }
        heap_set_top(heap, offset + size);
        block->word = size | (block->word & BLOCK_FLAGS);
        return true;
    }
    size_t more = block_size(next);
    if ((next->word & BLOCK_FREE) == 0 || now + more < size) {
        return false;
    }
    list_remove(heap, next);
    block_mark(heap, block, now + more, false);
    block_cut(heap, block, size, more >= heap->drop);
    return true;
}

/* The data of a block of `was` bytes elsewhere. */
static void *block_move(struct heap *heap, void *ptr, size_t was, size_t bytes)
{
    void *other = heap_alloc(heap, 16, bytes);

    if (other != NULL) {
        memcpy(other, ptr, was - HEAD_BYTES);
        heap_release(heap, ptr);
    }
    return other;
}

void *heap_realloc(struct heap *heap, void *ptr, size_t bytes)
{
    struct heap_free *block = block_of(ptr);
    size_t was = block_size(block);

    if (bytes > heap->bytes) {
        return NULL;
    }
    size_t size = size_for(bytes);
    if (size <= was) {
        block_cut(heap, block, size, false);
    } else if (!block_stretch(heap, block, size)) {
        return block_move(heap, ptr, was, bytes);
    }
    if (!heap_sync(heap)) {
        block_cut(heap, block, was, false);
        heap_sync(heap);
        return NULL;
    }
    heap->allocated += block_size(block) - was;
    return ptr;
}

/* ---- mappings ----------------------------------------------------------- */

struct heap_mapping {
    char *at;
    size_t bytes, left; /* all, and what was not given back */
};

void *heap_map(struct heap *heap, size_t bytes)
{
    if (heap->map_count == heap->map_room) {
        size_t room = heap->map_room * 2 + 8;
        struct heap_mapping *grown =
            poise_realloc(heap->maps, room, sizeof *grown);
        if (grown == NULL) {
            return NULL;
        }
        heap->maps = grown;
        heap->map_room = room;
    }
    size_t whole = (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    char *at = whole >= bytes ? heap_alloc_zero(heap, PAGE_BYTES, whole) : NULL;
    if (at != NULL) {
        heap->maps[heap->map_count++] =
            (struct heap_mapping){.at = at, .bytes = whole, .left = whole};
    }
    return at;
}

void heap_unmap(struct heap *heap, void *at, size_t bytes)
{
    char *from = at, *to = from + bytes;

    for (size_t i = heap->map_count; i-- > 0;) {
        struct heap_mapping *map = &heap->maps[i];
        char *end = map->at + map->bytes;
        char *low = from > map->at ? from : map->at;
        char *high = to < end ? to : end;
        if (low >= high) {
            continue;
        }
        size_t gone = (size_t)(high - low);
        map->left -= gone < map->left ? gone : map->left;
        if (map->left == 0) {
            char *data = map->at;
            *map = heap->maps[--heap->map_count];
            heap_release(heap, data);
        } else {
            madvise(low, gone, MADV_DONTNEED);
            heap->drops++;
        }
    }
}

void heap_free_maps(struct heap *heap)
{
    free(heap->maps);
    heap->maps = NULL;
    heap->map_count = heap->map_room = 0;
}

/* ---- what there is to save ---------------------------------------------- */

static int extent_compare(const void *a, const void *b)
{
    const struct heap_extent *left = a, *right = b;
    return (left->from > right->from) - (left->from < right->from);
}

static bool extent_room(struct heap_extent **out, size_t *room, size_t count)
{
    if (count < *room) {
        return true;
    }
    size_t more = *room * 2 + 64;
    struct heap_extent *grown = poise_realloc(*out, more, sizeof **out);
    if (grown == NULL) {
        return false;
    }
    *out = grown;
    *room = more;
    return true;
}

/* The pages inside free blocks, in no order. */
static int heap_holes(const struct heap *heap, struct heap_extent **out,
                      size_t *room)
{
    size_t count = 0;
    int least, second;

    list_of(EXTENT_LEAST, &least, &second);
    for (int first = least; first < HEAP_FIRST; first++) {
        for (int i = 0; i < HEAP_SECOND; i++) {
            for (const struct heap_free *block = heap->lists[first][i];
                 block != NULL; block = block->next) {
                size_t offset = block_offset(heap, block);
                size_t end = offset + block_size(block) - sizeof(size_t);
                if (!extent_room(out, room, count + 1)) {
                    return -ENOMEM;
                }
                (*out)[count++] = (struct heap_extent){
                    .from = (offset + sizeof *block + PAGE_BYTES - 1) &
                            ~(PAGE_BYTES - 1),
                    .to = end & ~(PAGE_BYTES - 1)};
            }
        }
    }
    return (int)count;
}

int heap_extents(const struct heap *heap, struct heap_extent **out,
                 size_t *room)
{
    int count = heap_holes(heap, out, room);

    if (count < 0 || !extent_room(out, room, (size_t)count)) {
        return -ENOMEM;
    }
    qsort(*out, (size_t)count, sizeof **out, extent_compare);
    /* What lies between the holes. */
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        size_t to = (*out)[i].to;
        (*out)[i].to = (*out)[i].from;
        (*out)[i].from = at;
        at = to;
    }
    (*out)[count] = (struct heap_extent){
        .from = at, .to = (heap->top + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1)};
    return count + 1;
}
