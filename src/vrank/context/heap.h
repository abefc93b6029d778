/*
 * A heap in a given range of addresses: what malloc gives a rank whose context
 * may be swapped out.
 *
 * Blocks lie one after the other from the beginning of the range up to `top`;
 * free ones are known to their neighbours and are joined at once, and are kept
 * in lists by size, two levels of which are found by bits (as in TLSF). The
 * large ones among them need neither memory nor disk: their pages are given
 * back, and heap_extents leaves them out.
 *
 * What the heap holds of memory is counted in units, and it asks before it
 * takes more. One thread at a time.
 */
#ifndef POISE_VRANK_HEAP_H
#define POISE_VRANK_HEAP_H

#include <poise/core.h>

struct heap_free;
struct heap_mapping;

/** Size classes: powers of two, each in 16 parts. */
enum { HEAP_FIRST = 48, HEAP_SECOND = 16 };

struct heap {
    char *base;       /**< aligned to `unit` */
    size_t bytes;     /**< the range */
    size_t unit;      /**< in which memory is held; a power of two, at least a
                           page */
    size_t drop;      /**< free blocks from here on give their memory back */
    size_t top;       /**< blocks lie below */
    size_t reach;     /**< pages below may be in memory; a multiple of unit */
    size_t fresh;     /**< above, all is zero */
    size_t held;      /**< bytes of memory: reach, less what is given back */
    size_t charged;   /**< of those, what was taken */
    size_t allocated; /**< bytes of blocks in use */
    uint64_t changes; /**< grows when heap_extents would find something else;
                           never 0 once there is a block */
    uint64_t drops;   /**< how often pages were given back */
    /** Whether the heap may hold `bytes` more. It may block. */
    bool (*take)(void *arg, size_t bytes);
    /** It holds so much less. */
    void (*give)(void *arg, size_t bytes);
    void *arg;
    uint64_t first; /**< which powers have free blocks */
    uint32_t second[HEAP_FIRST];
    struct heap_free *lists[HEAP_FIRST][HEAP_SECOND];
    struct heap_mapping *maps; /**< [map_room]; owned */
    size_t map_count, map_room;
};

/** Zeroed pages that are given back page by page. NULL: no memory. */
void *heap_map(struct heap *heap, size_t bytes);
/** Give pages of mappings back, which are empty at once; their addresses are
 * free when the whole of a mapping was given back. */
void heap_unmap(struct heap *heap, void *at, size_t bytes);
/** What belongs to the heap and not to its range. */
void heap_free_maps(struct heap *heap);

/** A range of a heap: offsets, multiples of the page. */
struct heap_extent {
    size_t from, to;
};

/** `base`, `bytes`, `unit` and the functions are set by the caller, the rest
 * is zero; the range is zeroed memory that is not yet touched. */
void heap_init(struct heap *heap);

/** Memory aligned to `align`, a power of two; at least 16. NULL: the range or
 * the memory is used up. */
void *heap_alloc(struct heap *heap, size_t align, size_t bytes);
/** The same, zeroed. */
void *heap_alloc_zero(struct heap *heap, size_t align, size_t bytes);
/** As realloc(3), for a block of this heap; `bytes` is not 0. */
void *heap_realloc(struct heap *heap, void *ptr, size_t bytes);
void heap_release(struct heap *heap, void *ptr);
/** How much the caller may use of a block. */
size_t heap_usable(const void *ptr);

/**
 * What has to be saved of the heap: all but the inside of free blocks. The
 * caller's array, which grows as needed; returns how many, ascending, or
 * -ENOMEM.
 */
int heap_extents(const struct heap *heap, struct heap_extent **out,
                 size_t *room);
#endif
