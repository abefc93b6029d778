/*
 * A run's contexts, and what their ranks do with them: they are suspended and
 * resumed, end, and allocate. Which of them are in memory is swap.c's.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CONTEXT_SMALL_UNIT ((size_t)64 << 10)
/* Extents of contexts in small pages; others have huge pages. */
#define CONTEXT_SMALL_EXTENT ((size_t)256 << 10)
/* What part of the mappings that a process may have is for extents, where the
 * kernel does not say how many those are. */
#define CONTEXT_MAPPINGS 65530

struct contexts *contexts;
uintptr_t context_base;
size_t context_span;

/* ---- beginning and end -------------------------------------------------- */

static bool context_take(void *arg, size_t bytes);
static void context_give(void *arg, size_t bytes);

/* Addresses for all slots, which cannot be touched. */
static int contexts_reserve(struct contexts *all)
{
    uint64_t bytes;
    void *mapping = MAP_FAILED;

    if (!__builtin_mul_overflow((uint64_t)all->count, all->plan.slot_bytes,
                                &bytes) &&
        bytes < UINT64_MAX / 2 && poise_fault_check(POISE_FAULT_ALLOC) == 0) {
        all->mapping_bytes = (size_t)bytes + CONTEXT_HUGE;
        mapping = mmap(NULL, all->mapping_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (mapping == MAP_FAILED) {
        return poise_error_set(
            ENOMEM, "swap the contexts of virtual ranks", NULL,
            "there are no addresses for %d contexts of %llu "
            "MiB",
            all->count, (unsigned long long)all->plan.slot_bytes >> 20);
    }
    all->mapping = mapping;
    context_base =
        ((uintptr_t)mapping + CONTEXT_HUGE - 1) & ~(CONTEXT_HUGE - 1);
    return 0;
}

/* Bits for the pages of a slot. */
static size_t stored_words(uint64_t slot_bytes)
{
    return (size_t)(slot_bytes / CONTEXT_PAGE + 63) / 64;
}

/* Huge pages where contexts are not mostly empty, and memory has many of
 * them. */
static size_t heap_unit(const struct contexts *all)
{
    uint64_t each = all->plan.budget_bytes / 2 / (uint64_t)all->threads;

    each = each < all->plan.context_bytes ? each : all->plan.context_bytes;
    return each >= 8 * CONTEXT_HUGE ? CONTEXT_HUGE : CONTEXT_SMALL_UNIT;
}

/* Those that are in memory are a mapping each, and part what is away: all of
 * them are to need half of the mappings that a process may have. */
static void contexts_extents(struct contexts *all)
{
    uint64_t most = CONTEXT_MAPPINGS;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    unsigned long long number;

    if (file != NULL) {
        most = fscanf(file, "%llu", &number) == 1 ? number : most;
        fclose(file);
    }
    all->extent_bytes =
        heap_unit(all) == CONTEXT_HUGE ? CONTEXT_HUGE : CONTEXT_SMALL_EXTENT;
    while (all->plan.budget_bytes / all->extent_bytes * 2 > most / 2) {
        all->extent_bytes *= 2;
    }
    all->extent_count =
        (size_t)((all->plan.slot_bytes + all->extent_bytes - 1) /
                 all->extent_bytes);
}

/* Huge pages, if there are any, move twice as fast. */
static void heap_advise(const struct heap *heap)
{
    bool huge = heap->unit == CONTEXT_HUGE;

    madvise(heap->base, heap->bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (huge) {
        /* Of a context that stays small, no more than it has. */
        madvise(heap->base, CONTEXT_HUGE, MADV_NOHUGEPAGE);
    }
}

/* Memory for a heap, and a mapping of another kind behind it. */
static int heap_map_range(const struct heap *heap)
{
    if (mprotect(heap->base, heap->bytes, PROT_READ | PROT_WRITE) != 0 ||
        mmap(heap->base + heap->bytes, heap->unit, PROT_NONE,
             MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED) {
        return poise_error_set(errno, "swap the contexts of virtual ranks",
                               NULL, "the addresses cannot be divided");
    }
    heap_advise(heap);
    return 0;
}

static int contexts_fill(struct contexts *all)
{
    size_t slot = (size_t)all->plan.slot_bytes, unit = heap_unit(all);
    int code = 0;

    for (int i = 0; i < all->count && code == 0; i++) {
        struct context *context = &all->items[i];
        context->index = i;
        context->list = -1;
        context->pending_end = &context->pending;
        context->extents = all->extents + (size_t)i * all->extent_count;
        context->stored =
            all->stored + (size_t)i * stored_words(all->plan.slot_bytes);
        context->heap =
            (struct heap){.base = (char *)context_base + (size_t)i * slot,
                          .bytes = slot - unit,
                          .unit = unit,
                          .take = context_take,
                          .give = context_give,
                          .arg = context};
        heap_init(&context->heap);
        pthread_mutex_init(&context->heap_lock, NULL);
        code = heap_map_range(&context->heap);
    }
    context_span = (size_t)all->count * slot;
    return code;
}

static int contexts_make(struct contexts *all,
                         const struct context_options *options)
{
    uint64_t free_bytes = 0;
    int code = context_disk_free_bytes(options->scratch, &free_bytes);

    if (code == 0) {
        code = context_plan(options, free_bytes, &all->plan);
    }
    if (code == 0) {
        contexts_extents(all);
        all->items = poise_alloc((size_t)all->count, sizeof *all->items);
        all->extents = poise_alloc((size_t)all->count * all->extent_count,
                                   sizeof *all->extents);
        all->stored =
            poise_alloc((size_t)all->count * stored_words(all->plan.slot_bytes),
                        sizeof *all->stored);
        code = all->items != NULL && all->extents != NULL && all->stored != NULL
                   ? transfer_begin(all)
                   : -ENOMEM;
    }
    if (code == 0) {
        code = frames_begin(all);
    }
    if (code == 0) {
        code = context_disk_create(options->scratch, all->count,
                                   all->plan.slot_bytes, &options->disk,
                                   &all->disk);
    }
    if (code == 0) {
        code = contexts_reserve(all);
    }
    return code == 0 ? dirty_begin(all, options->tracking) : code;
}

int context_begin(const struct context_options *options)
{
    struct contexts *all = poise_alloc(1, sizeof *all);

    if (all == NULL) {
        return -ENOMEM;
    }
    *all = (struct contexts){.always = options->always,
                             .whole = options->whole,
                             .count = options->count,
                             .threads = options->threads,
                             .memory_bytes = options->memory_bytes,
                             .file_bytes = context_plan_files(options),
                             .pagemap = -1,
                             .status = -1,
                             .uffd = -1};
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->changed, NULL);
    pthread_cond_init(&all->asked, NULL);
    contexts = all;
    int code = contexts_make(all, options);
    code = code == 0 ? contexts_fill(all) : code;
    /* Where all are swapped at each call none is prefetched. */
    code = code == 0 && !all->always ? prefetch_begin(all) : code;
    code = code == 0 ? quick_begin(all) : code;
    code = code == 0 ? phases_begin(all) : code;
    if (code == 0) {
        budget_begin(all);
    }
    if (code < 0) {
        context_end();
    }
    return code;
}

void context_end(void)
{
    struct contexts *all = contexts;

    if (all == NULL) {
        return;
    }
    prefetch_end(all);
    quick_end(all);
    for (int i = 0; all->items != NULL && i < all->count; i++) {
        pending_free(all, &all->items[i]);
        phases_free(&all->items[i]);
        free(all->items[i].ranges);
        free(all->items[i].runs);
        heap_free_maps(&all->items[i].heap);
    }
    phases_end(all);
    transfer_end(all);
    if (all->mapping != NULL) {
        munmap(all->mapping, all->mapping_bytes);
    }
    frames_end(all);
    budget_end(all);
    dirty_end(all);
    context_disk_destroy(all->disk);
    pthread_cond_destroy(&all->asked);
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
    free(all->stored);
    free(all->extents);
    free(all->items);
    free(all);
    contexts = NULL;
    context_span = 0;
    context_base = 0;
}

void context_sums(struct context_sums *out)
{
    *out = (struct context_sums){0};
    if (contexts != NULL) {
        pthread_mutex_lock(&contexts->lock);
        *out = contexts->sums;
        out->tracking = contexts->uffd >= 0 ? POISE_VRANK_TRACK_ASYNC_WP
                                            : POISE_VRANK_TRACK_FULL;
        pthread_mutex_unlock(&contexts->lock);
    }
}

void context_moved(const struct context *context,
                   uint64_t out[static POISE_VRANK_MOVES])
{
    memset(out, 0, POISE_VRANK_MOVES * sizeof *out);
    if (context != NULL) {
        pthread_mutex_lock(&contexts->lock);
        memcpy(out, context->moved, sizeof context->moved);
        pthread_mutex_unlock(&contexts->lock);
    }
}

/* ---- ranks -------------------------------------------------------------- */

static void context_resume(struct context *context)
{
    struct contexts *all = contexts;

    if (quick_resume(all, context)) {
        return;
    }
    pthread_mutex_lock(&all->lock);
    quick_drain(all);
    context_open(all, context, true);
    context->active = true;
    pthread_mutex_unlock(&all->lock);
}

static void context_suspend(struct context *context)
{
    struct contexts *all = contexts;

    if (quick_suspend(all, context)) {
        return;
    }
    pthread_mutex_lock(&all->lock);
    quick_stop_here(all);
    context->active = false;
    context_close(all, context, true);
    if (all->always && context->opens == 0 && !context->busy) {
        context_occupy(all, context);
        while (context->holds > 0) {
            contexts_wait(all);
        }
        context_evict(all, context);
        context_free_up(all, context);
    }
    pthread_mutex_unlock(&all->lock);
}

/* Nothing of it is needed any more. Under the lock. */
static void context_clear(struct contexts *all, struct context *context)
{
    struct heap *heap = &context->heap;

    context_unlist(all, context);
    extents_forget(all, context);
    mmap(heap->base, heap->bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    all->used_bytes -= context->held + context->lease;
    all->leased_bytes -= context->lease;
    context->held = context->lease = context->shared = 0;
    context->shares = 0;
    memset(context->extents, 0,
           context->extent_count * sizeof *context->extents);
    pending_free(all, context);
    context->is_retired = true;
    context->opens = 0;
    all->open_count--;
    pthread_cond_broadcast(&all->changed);
}

static void context_retire(struct context *context)
{
    struct contexts *all = contexts;

    pthread_mutex_lock(&all->lock);
    quick_stop_here(all);
    while (context->busy || context->holds > 0 ||
           (context->opens > 1 && !context->keeps_resident)) {
        contexts_wait(all);
    }
    context->active = false;
    if (!context->keeps_resident) {
        context_clear(all, context);
    }
    pthread_mutex_unlock(&all->lock);
}

void context_adopt(struct vrank *rank, int index)
{
    if (contexts != NULL) {
        rank->context = &contexts->items[index];
        context_resume(rank->context);
    }
}

void context_origin(const struct vrank *rank, uintptr_t address)
{
    if (rank->context != NULL) {
        rank->context->origin = address;
    }
}

const struct vrank_swap_ops context_swap_ops = {
    .suspend = context_suspend,
    .resume = context_resume,
    .prefetch = context_prefetch,
    .is_resident = context_is_resident,
    .retire = context_retire,
};

void context_keep_resident(struct context *context)
{
    pthread_mutex_lock(&contexts->lock);
    quick_stop_here(contexts);
    if (!context->keeps_resident) {
        context->keeps_resident = true;
        context->opens++;
        contexts->open_count--;
    }
    pthread_mutex_unlock(&contexts->lock);
}

/* ---- heaps -------------------------------------------------------------- */

/* The heap of the rank that runs has more than is to be in memory: the rest is
 * the kernel's. Whether that can be. Under the lock, which is let go meanwhile.
 */
static bool context_share(struct contexts *all, struct context *context)
{
    uint64_t most = all->plan.context_bytes;

    /* Others may touch it, for a moment. */
    while (context->busy || context->opens > 1) {
        if (context->keeps_resident) {
            return false;
        }
        contexts_wait(all);
    }
    context_occupy(all, context);
    pthread_mutex_unlock(&all->lock);
    int code = extents_share(all, context, most);
    if (code < 0) {
        context_fail();
    }
    pthread_mutex_lock(&all->lock);
    context_free_up(all, context);
    /* Of an extent that is shared nobody can have the rest. */
    return context->heap.held <= most + context->shared + all->extent_bytes;
}

static bool context_take(void *arg, size_t bytes)
{
    struct context *context = arg;
    struct contexts *all = contexts;

    pthread_mutex_lock(&all->lock);
    quick_stop_here(all);
    uint64_t whole = context->heap.charged + bytes;
    uint64_t have = context->held + context->lease;
    bool fits = whole <= all->plan.heap_bytes;
    if (fits && whole > all->plan.context_bytes + context->shared) {
        fits = context_share(all, context);
    }
    uint64_t wanted = whole > context->shared ? whole - context->shared : 0;
    if (fits && wanted > have) {
        fits = contexts_room(all, context, NULL, wanted - have, true);
        context->lease += fits ? wanted - have : 0;
        all->leased_bytes += fits ? wanted - have : 0;
    }
    pthread_mutex_unlock(&all->lock);
    return fits;
}

void context_refused(const struct heap *heap, size_t bytes)
{
    int kept = 0;
    uint64_t held = 0;
    char why[120] = "";

    pthread_mutex_lock(&contexts->lock);
    for (int i = 0; i < contexts->count; i++) {
        const struct context *context = &contexts->items[i];
        if (context->keeps_resident && !context->is_retired) {
            kept++;
            held += context->held + context->lease;
        }
    }
    pthread_mutex_unlock(&contexts->lock);
    if (kept > 0) {
        snprintf(why, sizeof why,
                 ". %d that started threads (OpenMP: OMP_NUM_THREADS=1) stay "
                 "in memory, with %llu MiB",
                 kept, (unsigned long long)held >> 20);
    }
    vrank_say_once(
        VRANK_ONCE_MEMORY,
        "a virtual rank got no memory: it has %llu MiB, wants %llu more, "
        "and may have %llu, if the scratch folders have room; 'poise run "
        "--context SIZE' changes that%s",
        (unsigned long long)heap->allocated >> 20,
        (unsigned long long)(bytes >> 20) + 1,
        (unsigned long long)contexts->plan.heap_bytes >> 20, why);
}

/* What it leases is found anew when it is closed. */
static void context_give(void *arg, size_t bytes)
{
    (void)arg;
    (void)bytes;
}

struct context *context_self(void)
{
    const struct vrank *self = vrank_self();
    struct context *context = self != NULL ? self->context : NULL;
    /* Without the lock: only this worker changes `active`. */
    return context != NULL && context->active ? context : NULL;
}

struct context *context_of(const void *ptr)
{
    return &contexts->items[((uintptr_t)ptr - context_base) /
                            (size_t)contexts->plan.slot_bytes];
}

static struct heap *heap_open(struct context *context)
{
    if (context->keeps_resident) {
        pthread_mutex_lock(&context->heap_lock);
    }
    return &context->heap;
}

struct heap *context_lock(void)
{
    struct context *self = context_self();
    return self != NULL ? heap_open(self) : NULL;
}

struct heap *context_lock_of(const void *ptr)
{
    struct context *context = context_of(ptr);

    return context == context_self() || context->keeps_resident
               ? heap_open(context)
               : NULL;
}

void context_unlock(struct heap *heap)
{
    struct context *context = heap->arg;

    if (context->keeps_resident) {
        pthread_mutex_unlock(&context->heap_lock);
    }
}
