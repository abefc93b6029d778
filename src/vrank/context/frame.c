/*
 * Frames: memory of extents that belongs to none. What an extent leaves goes to
 * the next that comes: pages are moved (mremap), which costs next to nothing,
 * while pages from the kernel would be zeroed first, and take longer than the
 * disk. And an extent that comes is read into a frame, and appears in its place
 * when it is whole.
 *
 * Pages that lie beside each other in memory go to and from the disk at twice
 * the speed of others. Extents that are smaller than huge pages have them too:
 * their frames are made of one, some at a time, and stay together whatever
 * place they are moved to. What a program touches first by itself has scattered
 * pages; those are not handed on.
 *
 * A frame is warm while it has pages, else cold. An extent in its place has
 * another advice about reading ahead than its neighbours, and than frames
 * (which means nothing for anonymous memory): so their mappings never become
 * one. Where they did, the kernel would forget to watch what is written to the
 * neighbour (dirty.c).
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Headers may be older than the kernel. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
/* The most frames of a huge page; and how many huge pages contexts need at
 * least, so that one more or less counts for little. */
enum { FRAMES_GROUP = 16, FRAMES_PAGES = 4 };

/* How many frames are made of a huge page: of none, if the user wants none, or
 * several threads bring contexts: 32 ranks of HPCCG on two threads in 40 MiB
 * then filled their group with pages of files that came by single faults, which
 * the kernel could not give back at the time, and it killed them. */
static int frames_group(const struct contexts *all)
{
    char text[64];
    int fd = open("/sys/kernel/mm/transparent_hugepage/enabled",
                  O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    size_t count = CONTEXT_HUGE / all->extent_bytes;

    if (fd >= 0) {
        close(fd);
    }
    text[bytes > 0 ? bytes : 0] = '\0';
    return bytes > 0 && strstr(text, "[never]") == NULL && all->threads == 1 &&
                   count > 1 && count <= FRAMES_GROUP &&
                   all->plan.budget_bytes >= FRAMES_PAGES * CONTEXT_HUGE
               ? (int)count
               : 0;
}

int frames_begin(struct contexts *all)
{
    struct frames *frames = &all->frames;
    /* No more can be in memory; and those that are on their way. */
    uint64_t count = all->memory_bytes / all->extent_bytes +
                     2 * (uint64_t)all->threads * EXTENT_BATCH;

    frames->bytes = all->extent_bytes;
    frames->group = frames_group(all);
    count += (uint64_t)all->threads * 2 * (uint64_t)frames->group;
    frames->count = (int)count;
    frames->warm = poise_alloc(count, sizeof *frames->warm);
    frames->cold = poise_alloc(count, sizeof *frames->cold);
    if (frames->warm == NULL || frames->cold == NULL) {
        return -ENOMEM;
    }
    /* Aligned as extents are. */
    size_t bytes = (count + 1) * frames->bytes;
    char *area = poise_fault_check(POISE_FAULT_ALLOC) == 0
                     ? mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                     : MAP_FAILED;
    if (area == MAP_FAILED) {
        return poise_error_set(ENOMEM, "swap the contexts of virtual ranks",
                               NULL, NULL);
    }
    frames->area = area;
    madvise(area, bytes,
            frames->bytes >= CONTEXT_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    madvise(area, bytes, MADV_RANDOM);
    for (int i = frames->count; i-- > 0;) {
        frames->cold[frames->cold_count++] = i;
    }
    return 0;
}

void frames_end(struct contexts *all)
{
    struct frames *frames = &all->frames;

    if (frames->area != NULL) {
        munmap(frames->area, ((size_t)frames->count + 1) * frames->bytes);
    }
    free(frames->warm);
    free(frames->cold);
}

char *frame_at(const struct contexts *all, int slot)
{
    uintptr_t base = (uintptr_t)all->frames.area, unit = all->frames.bytes;

    return (char *)((base + unit - 1) / unit * unit + (size_t)slot * unit);
}

int frame_get_cold(struct contexts *all)
{
    struct frames *frames = &all->frames;

    return frames->cold_count > 0 ? frames->cold[--frames->cold_count] : -1;
}

int frame_get(struct contexts *all)
{
    struct frames *frames = &all->frames;

    return frames->warm_count > 0 ? frames->warm[--frames->warm_count]
                                  : frame_get_cold(all);
}

void frame_put(struct contexts *all, int slot, bool is_warm)
{
    struct frames *frames = &all->frames;

    if (is_warm) {
        frames->warm[frames->warm_count++] = slot;
    } else {
        frames->cold[frames->cold_count++] = slot;
    }
}

/* The source stays mapped, and is empty: Linux 5.7. The kernel is called past
 * the C library: what MPIs bring with them stands in for its mremap and forgets
 * where to (libucm of UCX before 1.15). */
static bool frame_move(char *from, char *to, size_t bytes)
{
    return syscall(SYS_mremap, from, bytes, bytes,
                   MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                   to) == (long)(uintptr_t)to;
}

/* Memory of a huge page for frames: how many have got theirs. */
static int frames_make(const struct contexts *all, const int *slots)
{
    size_t bytes = all->frames.bytes;
    int made = 0;
    char *area = mmap(NULL, 2 * CONTEXT_HUGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (area == MAP_FAILED) {
        return 0;
    }
    char *page = (char *)(((uintptr_t)area + CONTEXT_HUGE - 1) &
                          ~(uintptr_t)(CONTEXT_HUGE - 1));
    madvise(page, CONTEXT_HUGE, MADV_HUGEPAGE);
    if (madvise(page, CONTEXT_HUGE, MADV_POPULATE_WRITE) == 0) {
        madvise(page, CONTEXT_HUGE, MADV_NOHUGEPAGE);
        madvise(page, CONTEXT_HUGE, MADV_RANDOM);
        while (made < all->frames.group &&
               frame_move(page + (size_t)made * bytes,
                          frame_at(all, slots[made]), bytes)) {
            made++;
        }
    }
    munmap(area, 2 * CONTEXT_HUGE);
    return made;
}

bool frames_grow(struct contexts *all)
{
    struct frames *frames = &all->frames;
    uint64_t bytes = (uint64_t)frames->group * frames->bytes;
    int slots[FRAMES_GROUP], made;

    if (frames->cold_count < frames->group) {
        return false;
    }
    for (int i = 0; i < frames->group; i++) {
        slots[i] = frame_get_cold(all);
    }
    all->used_bytes += bytes; /* others look for room meanwhile */
    pthread_mutex_unlock(&all->lock);
    made = frames_make(all, slots);
    pthread_mutex_lock(&all->lock);
    all->used_bytes -= bytes;
    for (int i = 0; i < frames->group; i++) {
        frame_put(all, slots[i], i < made);
    }
    if (made < frames->group) {
        pthread_cond_broadcast(&all->changed);
    }
    return made > 0;
}

bool frame_take(const struct contexts *all, int slot, char *place)
{
    char *frame = frame_at(all, slot);
    bool moved = frame_move(place, frame, all->frames.bytes);

    if (moved) {
        madvise(frame, all->frames.bytes, MADV_RANDOM);
    }
    return moved;
}

int frame_place(const struct contexts *all, int slot, char *place, bool odd)
{
    char *frame = frame_at(all, slot);
    size_t bytes = all->frames.bytes;

    if (frame_move(frame, place, bytes)) {
        madvise(place, bytes, odd ? MADV_SEQUENTIAL : MADV_NORMAL);
        return 0;
    }
    /* Memory of another nature cannot be moved. */
    if (mmap(place, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED) {
        return poise_error_set(errno, "bring a context into memory", NULL,
                               NULL);
    }
    memcpy(place, frame, bytes);
    frame_cool(all, slot);
    return 0;
}

void frame_cool(const struct contexts *all, int slot)
{
    madvise(frame_at(all, slot), all->frames.bytes, MADV_DONTNEED);
}
