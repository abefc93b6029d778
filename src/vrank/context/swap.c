/*
 * Which contexts are in memory.
 *
 * A context's state, under the one lock of all contexts:
 *
 *   SWAPPED_OUT  at first, and while it lies on disk: its addresses cannot be
 *                touched; what is written to it goes to disk, or is pending
 *   RESIDENT     its heap is in memory
 *   RETIRED      its rank has ended, its memory was given back
 *
 *   SWAPPED_OUT -> RESIDENT   context_fill: for its rank that is resumed, a
 *                             thread that pins it, or ahead of its time
 *   RESIDENT -> SWAPPED_OUT   context_evict: for a thread that needs room, or
 *                             at each wait if the run asks for that
 *   RESIDENT -> RETIRED       its own rank, at its end
 *
 * The first two take long, so the lock is let go meanwhile, and `busy` stands
 * for it. The thread that sets busy, where it was not set, owns the context
 * until it clears it: only the owner changes the state (but for RETIRED), moves
 * pages in and out, and touches `stored` and the pending writes. The owner of
 * a context that is swapped out may also read and write parts of it on disk
 * (access.c).
 *
 * A resident context is not evicted while it is busy, active (its rank runs) or
 * pinned; so its rank, and a thread that pins it, touch it without a lock.
 * `parts` counts transfers that are still under way when busy is cleared: only
 * the worker that started one ends it, and a context becomes resident only when
 * there are none.
 *
 * Contexts in memory stay within the budget: room is taken in used_bytes before
 * a context comes or a heap grows, and given back when a context was written or
 * a heap shrinks. The pages of the last victim go to the one that comes, or are
 * dropped before more room is made.
 *
 * No thread waits for ever: a worker has at most two contexts that cannot go,
 * that of the rank that runs and one that it pins, and there is room for two
 * for each worker. A thread that waits for a context to be no longer busy owns
 * none itself, and one that waits for room, or for the last parts, owns only
 * the context that is to come. Before a worker sleeps it ends its own
 * transfers.
 */
#include "internal.h"

#include <poise/trace.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

void context_count(struct contexts *all, struct context *context,
                   enum poise_vrank_move what, uint64_t bytes, uint64_t before)
{
    /* No worker waits for what the prefetching threads do. */
    uint64_t ns = vrank_here != NULL ? poise_clock_ns() - before : 0;

    context->moved[what] += bytes;
    context->moved[POISE_VRANK_MOVING] += ns;
    all->sums.wait_ns += ns;
}

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
    if (transfer_is_empty(all)) {
        pthread_cond_wait(&all->changed, &all->lock);
        return;
    }
    pthread_mutex_unlock(&all->lock);
    if (transfer_finish(all) < 0) {
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

void context_set_state(struct context *context, enum context_state state)
{
    __atomic_store_n(&context->state, state, __ATOMIC_RELAXED);
}

bool context_is_resident(const struct context *context)
{
    return __atomic_load_n(&context->state, __ATOMIC_RELAXED) ==
           CONTEXT_RESIDENT;
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
    int code = dirty_plan(all, context);

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

/* Read one that is busy into its memory, which is mapped. */
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
        dirty_watch(all, context);
    }
    return code;
}

/* That it went to disk or came back. */
static void context_record(const struct context *context, uint64_t began,
                           uint64_t bytes, bool in)
{
    struct poise_trace_ring *ring = poise_trace_ring();
    if (began != 0) {
        poise_trace_put(ring, POISE_TRACE_SWAP, (uint64_t)context->index, began,
                        poise_trace_ticks(ring), bytes, in);
    }
}

bool context_evict(struct contexts *all, struct context *context)
{
    uint64_t bytes = 0, before = poise_clock_ns();
    uint64_t began = poise_trace_ticks(poise_trace_ring());

    context->busy = true;
    context->is_prefetched = false;
    pthread_mutex_unlock(&all->lock);
    int code = context_write(all, context, &bytes);
    if (code < 0) {
        context_fail();
    }
    pthread_mutex_lock(&all->lock);
    context_count(all, context, POISE_VRANK_SWAPPED_OUT, bytes, before);
    context_record(context, began, bytes, false);
    all->sums.swapped_out += bytes;
    if (code == 0) {
        all->used_bytes -= context->heap.charged;
        heap_trim(&context->heap);
        context_set_state(context, CONTEXT_SWAPPED_OUT);
    } else {
        context_free_up(all, context);
    }
    return code == 0;
}

void victim_drop(struct contexts *all, struct context *victim)
{
    if (victim != NULL) {
        pthread_mutex_unlock(&all->lock);
        pages_drop(victim);
        pthread_mutex_lock(&all->lock);
        context_free_up(all, victim);
    }
}

/* The resident context that was not used for longest and may go; *moving:
 * whether others will be able to, sooner or later. */
static struct context *context_oldest(struct contexts *all, bool *moving)
{
    struct context *oldest = NULL;

    *moving = false;
    for (int i = 0; i < all->count; i++) {
        struct context *context = &all->items[i];
        if (context->state != CONTEXT_RESIDENT || context->keeps_resident) {
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
                   struct context **victim)
{
    bool moving;

    *victim = NULL;
    while (all->used_bytes + bytes > all->plan.budget_bytes) {
        if (*victim != NULL) {
            /* Its pages were not enough. Others may wait for it, or be
             * waited for, so it is not kept busy meanwhile. */
            victim_drop(all, *victim);
            *victim = NULL;
            continue;
        }
        struct context *oldest = context_oldest(all, &moving);
        if (oldest != NULL && (waits || !oldest->is_prefetched)) {
            if (!context_evict(all, oldest)) {
                return false;
            }
            *victim = oldest;
        } else if (moving && waits) {
            contexts_wait(all);
        } else {
            return false;
        }
    }
    all->used_bytes += bytes;
    return true;
}

/* Memory for one that comes: the victim's, if there is one. */
static int context_map(const struct contexts *all, struct context *context,
                       struct context *victim)
{
    struct heap *heap = &context->heap;
    bool mapped;

    if (victim != NULL && victim->is_split && heap->unit == CONTEXT_HUGE) {
        /* Fresh ones are huge again. */
        pages_drop(victim);
        victim->is_split = false;
        victim = NULL;
    }
    mapped = victim != NULL ? pages_take(all, context, victim)
                            : mprotect(heap->base, heap->bytes,
                                       PROT_READ | PROT_WRITE) == 0;
    return mapped ? 0
                  : poise_error_set(errno, "bring a context into memory", NULL,
                                    NULL);
}

bool context_fill(struct contexts *all, struct context *context,
                  struct context *victim)
{
    uint64_t bytes = 0, before = poise_clock_ns();
    uint64_t began = poise_trace_ticks(poise_trace_ring());

    context->is_arriving = true;
    pthread_mutex_unlock(&all->lock);
    int code = context_map(all, context, victim);
    if (victim != NULL) {
        pthread_mutex_lock(&all->lock);
        context_free_up(all, victim);
        pthread_mutex_unlock(&all->lock);
    }
    code = code == 0 ? context_read(all, context, &bytes) : code;
    if (code < 0) {
        context_fail();
    }
    pthread_mutex_lock(&all->lock);
    context->is_arriving = false;
    context_count(all, context, POISE_VRANK_SWAPPED_IN, bytes, before);
    context_record(context, began, bytes, true);
    all->sums.swapped_in += bytes;
    all->sums.swaps += bytes > 0;
    if (code == 0) {
        const struct pending_write *write = context->pending;
        for (; write != NULL; write = write->next) {
            memcpy(context->heap.base + write->offset, write->data,
                   write->bytes);
        }
        pending_free(all, context);
        context_set_state(context, CONTEXT_RESIDENT);
    }
    return code == 0;
}

/* Bring a context that is busy and swapped out into memory. Under the lock,
 * which is let go meanwhile. False: the job ends. */
static bool context_bring(struct contexts *all, struct context *context)
{
    struct context *victim;

    if (!contexts_room(all, context->heap.charged, true, &victim)) {
        poise_error_set(ENOMEM, "bring a context into memory", NULL,
                        "%d MiB are needed, and the contexts of ranks that "
                        "started threads, which stay in memory, leave less",
                        (int)(context->heap.charged >> 20));
        pthread_mutex_unlock(&all->lock);
        context_fail();
        pthread_mutex_lock(&all->lock);
        return false;
    }
    return context_fill(all, context, victim);
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
    context->is_prefetched = false;
    if (context->state == CONTEXT_SWAPPED_OUT) {
        context->busy = true;
        contexts_wait_parts(all, context);
        context_bring(all, context);
        context_free_up(all, context);
    }
    context->last_use = ++all->clock;
}
