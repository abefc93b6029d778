/*
 * The stacks of all ranks of a process, in one mapping: each a slot whose
 * lowest part is a guard. Memory is used where a stack was touched, no huge
 * pages, so that a deep stack may be promised to thousands of ranks.
 *
 * A function's frame that is larger than the guard could lie beyond it, in the
 * stack of another rank. So the guard is larger than any frame that is known
 * (loader/frame.c); it costs addresses only. Whatever a function does first
 * with its frame, at the latest a call, then falls into the guard.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Whether AddressSanitizer keeps notes about stacks. */
#if defined(__SANITIZE_ADDRESS__)
#define STACK_HAS_SHADOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STACK_HAS_SHADOW 1
#endif
#endif
#ifdef STACK_HAS_SHADOW
#include <sanitizer/asan_interface.h>
#endif

/** A C library function may need this much; less is no stack. */
#define STACK_LEAST_BYTES ((size_t)16 << 10)
#define STACK_DEFAULT_BYTES ((size_t)8 << 20)
/** No guard is smaller, as the kernel's own below a stack that grows: frames of
 * libraries that nobody looks at (the C library, MPI) are smaller still. */
#define STACK_GUARD_BYTES ((size_t)1 << 20)
/** What a frame takes besides what its function subtracts: saved registers, the
 * address of a call, what is used below the stack pointer. */
#define STACK_FRAME_BYTES ((size_t)64 << 10)

/* All stacks begin at the same place of a page otherwise, and a switch among
 * many would find their tops in the same few lines of the first cache. */
static size_t stack_colour(int index)
{
    return (size_t)index * 5 % 64 * 64;
}

/* Sizes in whole pages; false where they are too much. */
static bool stack_sizes(struct vrank_engine *engine, size_t page)
{
    size_t guard = engine->job.guard_bytes, want = engine->job.stack_bytes;
    if (want == 0) {
        want = STACK_DEFAULT_BYTES;
    }
    if (want < STACK_LEAST_BYTES) {
        want = STACK_LEAST_BYTES;
    }
    engine->promised_bytes = want;
    size_t slot;
    if (__builtin_add_overflow(guard, STACK_FRAME_BYTES + page, &guard)) {
        return false;
    }
    guard = guard < STACK_GUARD_BYTES ? STACK_GUARD_BYTES : guard;
    guard &= ~(page - 1);
    /* One page for the colours. */
    if (__builtin_add_overflow(want, 2 * page, &want)) {
        return false;
    }
    engine->stack_bytes = want & ~(page - 1);
    if (__builtin_add_overflow(engine->stack_bytes, guard, &slot)) {
        return false;
    }
    /* An odd number of pages: their translations would share a few sets of the
     * processor's caches for them otherwise, as the tops of stacks those of the
     * first cache. */
    engine->slot_bytes = slot | page;
    return true;
}

int stack_create(struct vrank_engine *engine)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!stack_sizes(engine, page)) {
        return poise_error_set(EINVAL, "make stacks of virtual ranks", NULL,
                               "%zu bytes each is too much",
                               engine->promised_bytes);
    }
    size_t bytes, slot = engine->slot_bytes;
    void *all = MAP_FAILED;
    int code = poise_fault_check(POISE_FAULT_ALLOC);
    errno = code != 0 ? code : ENOMEM;
    if (code == 0 &&
        !__builtin_mul_overflow(slot, (size_t)engine->local_count, &bytes)) {
        all = mmap(NULL, bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1,
                   0);
    }
    if (all == MAP_FAILED) {
        return poise_error_set(errno, "make stacks of virtual ranks", NULL,
                               "%d stacks of %zu bytes, guards included: %s",
                               engine->local_count, slot,
                               strerrordesc_np(errno));
    }
    engine->stacks = all;
    engine->stacks_bytes = bytes;
    madvise(all, bytes, MADV_NOHUGEPAGE);
    for (int i = 0; i < engine->local_count; i++) {
        if (mprotect(stack_low(engine, i), engine->stack_bytes,
                     PROT_READ | PROT_WRITE) != 0) {
            code = poise_error_set(errno, "make the stack of a virtual rank",
                                   NULL, NULL);
            stack_destroy(engine);
            return code;
        }
    }
    return 0;
}

void stack_destroy(struct vrank_engine *engine)
{
    if (engine->stacks != NULL) {
#ifdef STACK_HAS_SHADOW
        /* Ranks that never returned left notes for what comes to lie at this
         * address next. */
        __asan_unpoison_memory_region(engine->stacks, engine->stacks_bytes);
#endif
        munmap(engine->stacks, engine->stacks_bytes);
        engine->stacks = NULL;
    }
}

void *stack_low(const struct vrank_engine *engine, int index)
{
    char *slot = (char *)engine->stacks + (size_t)index * engine->slot_bytes;
    return slot + (engine->slot_bytes - engine->stack_bytes);
}

void *stack_top(const struct vrank_engine *engine, int index)
{
    char *end =
        (char *)engine->stacks + (size_t)(index + 1) * engine->slot_bytes;
    return end - stack_colour(index);
}
