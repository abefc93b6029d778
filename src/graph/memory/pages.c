/*
 * Large arrays live in mappings of their own: pages appear when they are first
 * touched (by the thread that will use them), can be huge, and go back to the
 * system piece by piece while a list of edges is used up.
 */
#include "memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/** Below this the kernel's huge pages (2 MiB) would mostly be waste. */
#define PAGES_HUGE_MIN ((uint64_t)4 << 20)

static int pages_short(uint64_t bytes)
{
    return poise_error_set(ENOMEM, "allocate memory", NULL,
                           "%llu bytes are not available",
                           (unsigned long long)bytes);
}

void *graph_pages_map(uint64_t bytes, bool huge)
{
    if (poise_fault_check(POISE_FAULT_ALLOC) != 0 || bytes > SIZE_MAX / 2) {
        pages_short(bytes);
        return NULL;
    }
    void *memory = mmap(NULL, bytes > 0 ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        pages_short(bytes);
        return NULL;
    }
    if (huge && bytes >= PAGES_HUGE_MIN) {
        /* A wish: kernels without huge pages refuse it. */
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    }
    return memory;
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PAGES_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define PAGES_TSAN 1
#endif

#ifdef PAGES_TSAN
/* The thread sanitizer does not see mremap, and takes two threads that get the
 * same place one after the other for a race. */
static void *pages_move(void *memory, uint64_t old_bytes, uint64_t bytes)
{
    void *moved = mmap(NULL, bytes > 0 ? bytes : 1, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (moved != MAP_FAILED) {
        memcpy(moved, memory, old_bytes < bytes ? old_bytes : bytes);
        munmap(memory, old_bytes > 0 ? old_bytes : 1);
    }
    return moved;
}
#else
static void *pages_move(void *memory, uint64_t old_bytes, uint64_t bytes)
{
    return mremap(memory, old_bytes > 0 ? old_bytes : 1, bytes > 0 ? bytes : 1,
                  MREMAP_MAYMOVE);
}
#endif

void *graph_pages_remap(void *memory, uint64_t old_bytes, uint64_t bytes)
{
    if (!memory) {
        return graph_pages_map(bytes, false);
    }
    if (poise_fault_check(POISE_FAULT_ALLOC) != 0 || bytes > SIZE_MAX / 2) {
        pages_short(bytes);
        return NULL;
    }
    void *moved = pages_move(memory, old_bytes, bytes);
    if (moved == MAP_FAILED) {
        pages_short(bytes);
        return NULL;
    }
    return moved;
}

void graph_pages_unmap(void *memory, uint64_t bytes)
{
    if (memory) {
        munmap(memory, bytes > 0 ? bytes : 1);
    }
}

void graph_pages_drop(void *memory, uint64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)memory + page - 1) & ~(page - 1);
    uintptr_t to = ((uintptr_t)memory + bytes) & ~(page - 1);
    if (from < to) {
        (void)madvise((void *)from, to - from, MADV_DONTNEED);
    }
}
