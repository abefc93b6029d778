/*
 * Which contexts are in memory, and access to those that are not: see
 * context.h.
 *
 * A context is away, or present. Whoever moves it, or reads or writes a part
 * of it on disk, has it for himself meanwhile (`busy`); a present one whose
 * rank runs, or that is pinned, is not moved. All this is under one lock,
 * without which transfers are waited for. Where memory is short, the present
 * context that was not used for longest goes.
 *
 * Nobody waits for ever: a worker has at most two contexts that cannot go, of
 * the rank that runs and of one that it pins, and there is room for two for
 * each. Who waits for one to be let go by its mover holds none that is busy.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CONTEXT_SMALL_UNIT ((size_t)64 << 10)

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

/* A mapping of another kind behind each heap. Without it a heap's could become
 * one with its neighbour's when pages are moved (context_pages.c), and the
 * kernel then forgets to watch the neighbour's, too. */
static int contexts_part(const struct contexts *all)
{
    for (int i = 0; i < all->count; i++) {
        const struct heap *heap = &all->items[i].heap;
        if (mmap(heap->base + heap->bytes, heap->unit, PROT_NONE,
                 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                 0) == MAP_FAILED) {
            return poise_error_set(errno, "swap the contexts of virtual ranks",
                                   NULL, "the addresses cannot be divided");
        }
    }
    return 0;
}

static int contexts_fill(struct contexts *all)
{
    size_t slot = (size_t)all->plan.slot_bytes;
    /* Where they are not mostly empty. */
    bool huge = all->plan.context_bytes >= 8 * CONTEXT_HUGE;
    size_t unit = huge ? CONTEXT_HUGE : CONTEXT_SMALL_UNIT;

    for (int i = 0; i < all->count; i++) {
        struct context *context = &all->items[i];
        context->index = i;
        context->notes_end = &context->notes;
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
        pages_advise(&context->heap);
        pthread_mutex_init(&context->heap_lock, NULL);
    }
    context_span = (size_t)all->count * slot;
    return contexts_part(all);
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
        all->items = poise_alloc((size_t)all->count, sizeof *all->items);
        all->stored =
            poise_alloc((size_t)all->count * stored_words(all->plan.slot_bytes),
                        sizeof *all->stored);
        code = all->items != NULL && all->stored != NULL ? flow_begin(all)
                                                         : -ENOMEM;
    }
    if (code == 0) {
        code = context_disk_create(options->scratch, all->count,
                                   all->plan.slot_bytes, &options->disk,
                                   &all->disk);
    }
    if (code == 0) {
        code = contexts_reserve(all);
    }
    return code == 0 ? track_begin(all, options->tracking) : code;
}

int context_begin(const struct context_options *options)
{
    struct contexts *all = poise_alloc(1, sizeof *all);

    if (all == NULL) {
        return -ENOMEM;
    }
    *all = (struct contexts){.always = options->always,
                             .count = options->count,
                             .threads = options->threads,
                             .pagemap = -1,
                             .uffd = -1};
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->changed, NULL);
    pthread_cond_init(&all->asked, NULL);
    contexts = all;
    int code = contexts_make(all, options);
    code = code == 0 ? contexts_fill(all) : code;
    /* Where all are swapped at each call nobody comes too early. */
    code = code == 0 && !all->always ? ahead_begin(all) : code;
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
    ahead_end(all);
    for (int i = 0; all->items != NULL && i < all->count; i++) {
        notes_free(all, &all->items[i]);
        free(all->items[i].extents);
        free(all->items[i].runs);
        heap_free_maps(&all->items[i].heap);
    }
    flow_end(all);
    if (all->mapping != NULL) {
        munmap(all->mapping, all->mapping_bytes);
    }
    track_end(all);
    context_disk_destroy(all->disk);
    pthread_cond_destroy(&all->asked);
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
    free(all->stored);
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

void context_count(struct contexts *all, struct context *context,
                   enum poise_vrank_move what, uint64_t bytes, uint64_t before)
{
    /* What is done ahead nobody waits for. */
    uint64_t ns = vrank_here != NULL ? poise_clock_ns() - before : 0;

    context->moved[what] += bytes;
    context->moved[POISE_VRANK_MOVING] += ns;
    all->sums.wait_ns += ns;
}

/* ---- moving ------------------------------------------------------------- */

void context_fail(void)
{
    struct poise_buf text = {0};
    char line[1024];

    /* The abort may not come back, so nothing is left to it to free. */
    poise_error_format(poise_error_last(), &text);
    snprintf(line, sizeof line, "%s", poise_buf_str(&text));
    poise_buf_free(&text);
    vrank_abort(POISE_VRANK_FAILED, "%s", line);
}

void contexts_wait(struct contexts *all)
{
    /* Others may wait for what this worker has under way. */
    if (flow_is_empty(all)) {
        pthread_cond_wait(&all->changed, &all->lock);
        return;
    }
    pthread_mutex_unlock(&all->lock);
    if (flow_finish(all) < 0) {
        context_fail();
    }
    pthread_mutex_lock(&all->lock);
}

void contexts_wait_parts(struct contexts *all, const struct context *context)
{
    while (__atomic_load_n(&context->parts, __ATOMIC_ACQUIRE) > 0) {
        contexts_wait(all);
    }
}

/* Others look at it without the lock. */
static void context_set(struct context *context, enum context_state state)
{
    __atomic_store_n(&context->state, state, __ATOMIC_RELAXED);
}

void context_free_up(struct contexts *all, struct context *context)
{
    context->busy = false;
    pthread_cond_broadcast(&all->changed);
}

/* Write a context that is busy to disk. */
static int context_write(struct contexts *all, struct context *context,
                         uint64_t *bytes)
{
    struct context_batch batch = {0};
    struct heap *heap = &context->heap;
    int code = track_plan(all, context);

    for (size_t i = 0; i < context->run_count && code == 0; i++) {
        size_t from = context->runs[i].from * CONTEXT_PAGE;
        size_t now = context->runs[i].to * CONTEXT_PAGE - from;
        *bytes += now;
        context_disk_add(all->disk, &batch, context->index, from,
                         heap->base + from, now, true);
    }
    int finished = context_disk_finish(&batch);
    return code == 0 ? finished : code;
}

/* Read one that is busy, into memory that is there. */
static int context_read(struct contexts *all, struct context *context,
                        uint64_t *bytes)
{
    struct context_batch batch = {0};
    struct heap *heap = &context->heap;
    size_t from, to = 0;

    while (stored_next(context, &from, &to, heap->bytes / CONTEXT_PAGE)) {
        size_t at = from * CONTEXT_PAGE, now = (to - from) * CONTEXT_PAGE;
        *bytes += now;
        context_disk_add(all->disk, &batch, context->index, at, heap->base + at,
                         now, false);
    }
    int code = context_disk_finish(&batch);
    if (code == 0) {
        track_arm(all, context);
    }
    return code;
}

/* Swap a context out that is present and at rest; it is a shell then. Under
 * the lock, which is let go meanwhile. False: the job ends. */
static bool context_evict(struct contexts *all, struct context *context)
{
    uint64_t bytes = 0, before = poise_clock_ns();

    context->busy = true;
    context->is_ahead = false;
    pthread_mutex_unlock(&all->lock);
    int code = context_write(all, context, &bytes);
    if (code < 0) {
        context_fail();
    }
    pthread_mutex_lock(&all->lock);
    context_count(all, context, POISE_VRANK_SWAPPED_OUT, bytes, before);
    all->sums.swapped_out += bytes;
    if (code == 0) {
        all->used_bytes -= context->heap.charged;
        heap_trim(&context->heap);
        context_set(context, CONTEXT_AWAY);
    } else {
        context_free_up(all, context);
    }
    return code == 0;
}

/* Nobody takes the pages of a shell. Under the lock, which is let go
 * meanwhile. NULL: there is none. */
static void shell_drop(struct contexts *all, struct context *shell)
{
    if (shell != NULL) {
        pthread_mutex_unlock(&all->lock);
        pages_drop(shell);
        pthread_mutex_lock(&all->lock);
        context_free_up(all, shell);
    }
}

/* The present context that was not used for longest and may go; *moving:
 * whether others will be able to, sooner or later. */
static struct context *context_oldest(struct contexts *all, bool *moving)
{
    struct context *oldest = NULL;

    *moving = false;
    for (int i = 0; i < all->count; i++) {
        struct context *context = &all->items[i];
        if (context->state != CONTEXT_PRESENT || context->stays) {
            *moving |= context->is_arriving;
            continue;
        }
        if (context->busy) {
            *moving = true;
        } else if (context->active || context->pins > 0) {
            *moving |= all->threads > 1;
        } else if (context->heap.charged > 0 &&
                   (oldest == NULL || context->last_use < oldest->last_use)) {
            oldest = context;
        }
    }
    return oldest;
}

bool contexts_room(struct contexts *all, uint64_t bytes, bool waits,
                   struct context **shell)
{
    bool moving;

    *shell = NULL;
    while (all->used_bytes + bytes > all->plan.budget_bytes) {
        if (*shell != NULL) {
            /* Others may wait for it, or be waited for. */
            shell_drop(all, *shell);
            *shell = NULL;
            continue;
        }
        struct context *oldest = context_oldest(all, &moving);
        if (oldest != NULL && (waits || !oldest->is_ahead)) {
            if (!context_evict(all, oldest)) {
                return false;
            }
            *shell = oldest;
        } else if (moving && waits) {
            contexts_wait(all);
        } else {
            return false;
        }
    }
    all->used_bytes += bytes;
    return true;
}

/* Memory for one that comes: the shell's, if there is one. */
static int context_map(const struct contexts *all, struct context *context,
                       struct context *shell)
{
    struct heap *heap = &context->heap;
    bool mapped;

    if (shell != NULL && shell->is_split && heap->unit == CONTEXT_HUGE) {
        /* Fresh ones are huge again. */
        pages_drop(shell);
        shell->is_split = false;
        shell = NULL;
    }
    mapped = shell != NULL ? pages_take(all, context, shell)
                           : mprotect(heap->base, heap->bytes,
                                      PROT_READ | PROT_WRITE) == 0;
    return mapped ? 0
                  : poise_error_set(errno, "bring a context into memory", NULL,
                                    NULL);
}

bool context_fill(struct contexts *all, struct context *context,
                  struct context *shell)
{
    uint64_t bytes = 0, before = poise_clock_ns();

    context->is_arriving = true;
    pthread_mutex_unlock(&all->lock);
    int code = context_map(all, context, shell);
    if (shell != NULL) {
        pthread_mutex_lock(&all->lock);
        context_free_up(all, shell);
        pthread_mutex_unlock(&all->lock);
    }
    code = code == 0 ? context_read(all, context, &bytes) : code;
    if (code < 0) {
        context_fail();
    }
    pthread_mutex_lock(&all->lock);
    context->is_arriving = false;
    context_count(all, context, POISE_VRANK_SWAPPED_IN, bytes, before);
    all->sums.swapped_in += bytes;
    all->sums.swaps += bytes > 0;
    if (code == 0) {
        const struct context_note *note = context->notes;
        for (; note != NULL; note = note->next) {
            memcpy(context->heap.base + note->offset, note->data, note->bytes);
        }
        notes_free(all, context);
        context_set(context, CONTEXT_PRESENT);
    }
    return code == 0;
}

/* Bring a context that is busy and away into memory. Under the lock, which is
 * let go meanwhile. False: the job ends. */
static bool context_bring(struct contexts *all, struct context *context)
{
    struct context *shell;

    if (!contexts_room(all, context->heap.charged, true, &shell)) {
        poise_error_set(ENOMEM, "bring a context into memory", NULL,
                        "%d MiB are needed, and the contexts of ranks that "
                        "started threads, which stay in memory, leave less",
                        (int)(context->heap.charged >> 20));
        pthread_mutex_unlock(&all->lock);
        context_fail();
        pthread_mutex_lock(&all->lock);
        return false;
    }
    return context_fill(all, context, shell);
}

void context_need(struct contexts *all, struct context *context)
{
    if (context->busy) {
        uint64_t before = poise_clock_ns();
        while (context->busy) {
            contexts_wait(all);
        }
        context_count(all, context, POISE_VRANK_SWAPPED_IN, 0, before);
    }
    context->is_ahead = false;
    if (context->state == CONTEXT_AWAY) {
        context->busy = true;
        contexts_wait_parts(all, context);
        context_bring(all, context);
        context_free_up(all, context);
    }
    context->last_use = ++all->clock;
}

/* ---- ranks -------------------------------------------------------------- */

static void context_resume(struct context *context)
{
    struct contexts *all = contexts;

    pthread_mutex_lock(&all->lock);
    context_need(all, context);
    context->active = true;
    pthread_mutex_unlock(&all->lock);
}

static void context_suspend(struct context *context)
{
    struct contexts *all = contexts;

    pthread_mutex_lock(&all->lock);
    context->active = false;
    context->last_use = ++all->clock;
    if (all->always && context->pins == 0 && !context->stays) {
        if (context_evict(all, context)) {
            shell_drop(all, context);
        }
    } else if (all->threads > 1) {
        pthread_cond_broadcast(&all->changed);
    }
    pthread_mutex_unlock(&all->lock);
}

static bool context_is_resident(const struct context *context)
{
    return __atomic_load_n(&context->state, __ATOMIC_RELAXED) ==
           CONTEXT_PRESENT;
}

static void context_retire(struct context *context)
{
    struct contexts *all = contexts;
    struct heap *heap = &context->heap;

    pthread_mutex_lock(&all->lock);
    context->active = false;
    while (context->busy || context->pins > 0) {
        contexts_wait(all);
    }
    if (!context->stays) {
        madvise(heap->base, heap->reach, MADV_DONTNEED);
        mprotect(heap->base, heap->bytes, PROT_NONE);
        all->used_bytes -= heap->charged;
        notes_free(all, context);
        context_set(context, CONTEXT_GONE);
        pthread_cond_broadcast(&all->changed);
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

const struct vrank_swap_ops context_swap_ops = {
    .suspend = context_suspend,
    .resume = context_resume,
    .prefetch = context_prefetch,
    .is_resident = context_is_resident,
    .retire = context_retire,
};

void context_stay(struct context *context)
{
    pthread_mutex_lock(&contexts->lock);
    context->stays = true;
    pthread_mutex_unlock(&contexts->lock);
}

/* ---- heaps -------------------------------------------------------------- */

static bool context_take(void *arg, size_t bytes)
{
    struct context *context = arg, *shell = NULL;
    struct contexts *all = contexts;

    pthread_mutex_lock(&all->lock);
    bool fits = context->heap.charged + bytes <= all->plan.context_bytes;
    if (fits) {
        fits = contexts_room(all, bytes, true, &shell);
        shell_drop(all, shell);
    }
    pthread_mutex_unlock(&all->lock);
    return fits;
}

void context_refused(const struct heap *heap, size_t bytes)
{
    vrank_say_once(
        VRANK_ONCE_MEMORY,
        "a virtual rank got no memory: it has %llu MiB, wants %llu more, "
        "and may have %llu; 'poise run --memory SIZE' gives more",
        (unsigned long long)heap->allocated >> 20,
        (unsigned long long)(bytes >> 20) + 1,
        (unsigned long long)contexts->plan.context_bytes >> 20);
}

static void context_give(void *arg, size_t bytes)
{
    struct contexts *all = contexts;

    (void)arg;
    pthread_mutex_lock(&all->lock);
    all->used_bytes -= bytes;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

struct context *context_self(void)
{
    const struct vrank *self = vrank_self();
    return self != NULL ? self->context : NULL;
}

struct context *context_of(const void *ptr)
{
    return &contexts->items[((uintptr_t)ptr - context_base) /
                            (size_t)contexts->plan.slot_bytes];
}

static struct heap *context_open(struct context *context)
{
    if (context->stays) {
        pthread_mutex_lock(&context->heap_lock);
    }
    return &context->heap;
}

struct heap *context_lock(void)
{
    struct context *self = context_self();
    return self != NULL ? context_open(self) : NULL;
}

struct heap *context_lock_of(const void *ptr)
{
    struct context *context = context_of(ptr);

    return context == context_self() || context->stays ? context_open(context)
                                                       : NULL;
}

void context_unlock(struct heap *heap)
{
    struct context *context = heap->arg;

    if (context->stays) {
        pthread_mutex_unlock(&context->heap_lock);
    }
}
