/*
 * From fingerprints to positions, in memory of fixed size: an open table of
 * cells of 16 bytes, the largest power of two of them that fits, which counts
 * as full at three quarters. Full, it drops what is no more, and if that is not
 * enough, every second segment: sampling k keeps those whose rank, two bytes of
 * the segment's digest, has k zeros in front. The rank follows from the bytes
 * alone, so the two ends of a connection keep the same segments.
 *
 * Where a cache is shared, the table lies in memory that the server writes and
 * all others read as it is written. There is one writer, and no lock: a reader
 * may see a new fingerprint with an old position, or miss a segment while the
 * table is swept. What it finds is a hint: the container has the fingerprint,
 * or else it is not that one (store.c), and a miss costs bytes only. A reader
 * walks at most once round the table, as it may find no empty cell.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1 */
#endif

enum {
    CELLS_LEAST = 1024,
    HUGE_BYTES = 1 << 21,
    /* One cell in so many is used: most pages are to be soon. */
    THICK = 2048,
};

static size_t cells_for(size_t memory_bytes)
{
    size_t cells = CELLS_LEAST;

    while (2 * cells * sizeof(struct dedup_cell) <= memory_bytes) {
        cells *= 2;
    }
    return cells;
}

int dedup_index_create(struct dedup_index *index, size_t memory_bytes)
{
    size_t cells = cells_for(memory_bytes);

    *index = (struct dedup_index){.mask = cells - 1, .fd = -1};
    index->cells = poise_alloc(cells, sizeof *index->cells);
    return index->cells ? 0 : -ENOMEM;
}

static size_t shared_bytes(size_t cells)
{
    return DEDUP_SHARED_HEAD + cells * sizeof(struct dedup_cell);
}

/* To be written, too, if `writes`; the descriptor stays the caller's if this
 * fails. */
static int map_shared(struct dedup_index *index, int fd, size_t cells,
                      bool writes)
{
    size_t bytes = shared_bytes(cells);
    char *room = mmap(NULL, bytes + HUGE_BYTES, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    /* Where a huge page of the file can be one of memory. */
    size_t skip = -(uintptr_t)room & (HUGE_BYTES - 1);
    char *at = room == MAP_FAILED
                   ? MAP_FAILED
                   : mmap(room + skip, bytes,
                          writes ? PROT_READ | PROT_WRITE : PROT_READ,
                          MAP_SHARED | MAP_FIXED, fd, 0);

    if (at == MAP_FAILED) {
        poise_error_set(errno, "share the index of a cache", NULL, NULL);
        if (room != MAP_FAILED) {
            munmap(room, bytes + HUGE_BYTES);
        }
        return -poise_error_last()->code;
    }
    if (skip > 0) {
        munmap(room, skip);
    }
    munmap(at + bytes, HUGE_BYTES - skip);
    *index = (struct dedup_index){.mask = cells - 1, .fd = fd};
    index->shared = (struct dedup_shared *)(void *)at;
    index->cells = (struct dedup_cell *)(void *)(at + DEDUP_SHARED_HEAD);
    return 0;
}

int dedup_index_share(struct dedup_index *index, size_t memory_bytes)
{
    size_t cells = cells_for(memory_bytes);
    int code = poise_fault_check(POISE_FAULT_ALLOC);
    int fd = code
                 ? -1
                 : memfd_create("poise-cache", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int err = 0;

    if (fd < 0 || ftruncate(fd, (off_t)shared_bytes(cells)) < 0 ||
        /* A reader must be sure that it does not become shorter. */
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
        err = poise_error_set(code ? code : errno, "share the index of a cache",
                              NULL, NULL);
    }
    if (err == 0) {
        err = map_shared(index, fd, cells, true);
    }
    if (err < 0 && fd >= 0) {
        close(fd);
    }
    if (err == 0) {
        /* From now on no other process may write; old kernels do not know this
         * seal. */
        (void)fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    }
    return err;
}

int dedup_index_attach(struct dedup_index *index, int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;
    size_t cells;

    if (fstat(fd, &st) < 0 || seals < 0 || !(seals & F_SEAL_SHRINK) ||
        st.st_size < (off_t)shared_bytes(CELLS_LEAST)) {
        return poise_error_set(EBADMSG, "share the index of a cache", NULL,
                               "it is none");
    }
    cells =
        ((size_t)st.st_size - DEDUP_SHARED_HEAD) / sizeof(struct dedup_cell);
    if ((cells & (cells - 1)) != 0 ||
        shared_bytes(cells) != (size_t)st.st_size) {
        return poise_error_set(EBADMSG, "share the index of a cache", NULL,
                               "its size makes no sense");
    }
    return map_shared(index, fd, cells, false);
}

void dedup_index_lend(const struct dedup_index *index, struct dedup_index *out)
{
    *out = (struct dedup_index){.cells = index->cells,
                                .mask = index->mask,
                                .shared = index->shared,
                                .fd = -1,
                                .is_lent = true};
}

void dedup_index_free(struct dedup_index *index)
{
    if (index->is_lent) {
        index->shared = NULL;
    } else if (index->shared) {
        munmap(index->shared, shared_bytes(index->mask + 1));
        close(index->fd);
        index->shared = NULL;
    } else {
        free(index->cells);
    }
    index->cells = NULL;
}

bool dedup_index_is_full(const struct dedup_index *index)
{
    return index->used > index->mask - index->mask / 4;
}

static uint64_t position_of(uint64_t ranked)
{
    return ranked & ((UINT64_C(1) << DEDUP_RANK_SHIFT) - 1);
}

static bool keeps(const struct dedup_index *index, uint64_t ranked)
{
    return ranked >> DEDUP_RANK_SHIFT >> (DEDUP_RANK_BITS - index->sampling) ==
           0;
}

static uint64_t load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void store(struct dedup_cell *cell, uint64_t fingerprint,
                  uint64_t position)
{
    __atomic_store_n(&cell->fingerprint, fingerprint, __ATOMIC_RELAXED);
    __atomic_store_n(&cell->position, position, __ATOMIC_RELEASE);
}

/* The cell of a fingerprint, or the empty one where it would lie. NULL: a
 * reader may find neither while the server writes. */
static struct dedup_cell *cell_of(const struct dedup_index *index,
                                  uint64_t fingerprint)
{
    size_t at = (size_t)poise_hash_u64(fingerprint) & index->mask;

    for (size_t i = 0; i <= index->mask; i++) {
        struct dedup_cell *cell = &index->cells[at];
        if (load(&cell->position) == 0 ||
            load(&cell->fingerprint) == fingerprint) {
            return cell;
        }
        at = (at + 1) & index->mask;
    }
    return NULL;
}

uint64_t dedup_index_get(const struct dedup_index *index, uint64_t fingerprint)
{
    const struct dedup_cell *cell = cell_of(index, fingerprint);
    uint64_t ranked = cell ? load(&cell->position) : 0;

    return ranked == 0 ? UINT64_MAX : position_of(ranked - 1);
}

/* Searches go all over the table: that the processor knows the page of each is
 * worth more than the moment that this takes. Where it cannot be done, the
 * table stays as it is. */
static void thicken(struct dedup_index *index)
{
    uintptr_t from = (uintptr_t)(index->shared ? (void *)index->shared
                                               : (void *)index->cells);
    uintptr_t end = (uintptr_t)(index->cells + index->mask + 1);

    from = (from + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1);
    end &= ~(uintptr_t)(HUGE_BYTES - 1);
    for (; from < end; from += HUGE_BYTES) {
        /* Where no page is at all there is nothing to be collapsed. */
        (void)*(volatile const char *)from;
        (void)madvise((void *)from, HUGE_BYTES, MADV_COLLAPSE);
    }
}

void dedup_index_put(struct dedup_index *index, uint64_t fingerprint,
                     uint64_t ranked)
{
    struct dedup_cell *cell;

    if (!keeps(index, ranked)) {
        return;
    }
    cell = cell_of(index, fingerprint);
    /* One cell stays empty, or searches would be long. */
    if (!cell || (cell->position == 0 && index->used == index->mask)) {
        return;
    }
    if (cell->position == 0 && ++index->used == (index->mask + 1) / THICK) {
        thicken(index);
    }
    store(cell, fingerprint, ranked + 1);
}

/* Empty a cell; those behind it that are not where they belong move up, so
 * that searches find them. A reader may miss one meanwhile. */
static void take_out(struct dedup_index *index, size_t hole)
{
    size_t at = hole;

    for (;;) {
        const struct dedup_cell *cell;
        size_t home;
        at = (at + 1) & index->mask;
        cell = &index->cells[at];
        if (cell->position == 0) {
            break;
        }
        home = (size_t)poise_hash_u64(cell->fingerprint) & index->mask;
        if (((at - home) & index->mask) >= ((at - hole) & index->mask)) {
            store(&index->cells[hole], cell->fingerprint, cell->position);
            hole = at;
        }
    }
    store(&index->cells[hole], 0, 0);
    index->used--;
}

void dedup_index_sweep(struct dedup_index *index, unsigned sampling,
                       bool (*alive)(uint64_t position, const void *arg),
                       const void *arg)
{
    size_t i = 0;

    index->sampling = sampling;
    index->is_stuck = false;
    while (i <= index->mask) {
        uint64_t ranked = index->cells[i].position;
        if (ranked == 0 ||
            (keeps(index, ranked - 1) && alive(position_of(ranked - 1), arg))) {
            i++;
        } else {
            /* What comes to lie here has its turn. */
            take_out(index, i);
        }
    }
}
