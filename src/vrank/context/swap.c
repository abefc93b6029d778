/*
 * Which contexts are in memory, and how much of them.
 *
 * A context is open while its rank runs, or a thread pins it: any of it may be
 * touched then. Extents (internal.h) change only while it is not open and a
 * thread has it busy, which owns it then: the one lock of all contexts is let
 * go meanwhile. The owner of one that is not open may also read and write parts
 * of it on disk (access.c).
 *
 *   not open -> open   context_open: what its next phase is expected to touch
 *                      comes, and pending writes are put in
 *   open -> not open   context_close: what was touched is found, and counted
 *
 * What is in memory of a context that is not open may be copied from and to by
 * those that hold it; an extent does not go meanwhile.
 *
 * Memory stays within the budget. A context counts for the extents that it
 * holds; while it is open also for a lease: all else that its heap may have in
 * memory, since nobody sees it touched before the context is closed. Room for
 * both is made before, and whenever a heap grows. `used_bytes` is all of that;
 * warm frames have the rest, if they need no more than that.
 *
 * What goes first: extents that their rank does not need in its next phase, of
 * contexts that were not used for longest; then the others, in the same order.
 *
 * No thread waits for ever: a worker has at most two contexts open, that of the
 * rank that runs and one that it pins, and there is room for two for each
 * worker, if there are several. A thread that waits for a context to be no
 * longer busy owns none itself, and one that waits for room, or for the last
 * parts, owns only the context that is to come. Before a worker sleeps it ends
 * its own transfers.
 */
#include "internal.h"

#include <poise/trace.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

void context_count(struct contexts *all, struct context *context,
                   enum poise_vrank_move what, uint64_t bytes, uint64_t before)
{
    /* No worker waits for what the prefetching threads do. */
    uint64_t ns = vrank_here != NULL ? poise_clock_ns() - before : 0;

    context->moved[what] += bytes;
    context->moved[POISE_VRANK_MOVING] += ns;
    all->sums.wait_ns += ns;
    if (ns > 0) {
        vrank_waited_for_disk(ns);
    }
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

bool context_is_resident(const struct context *context)
{
    return __atomic_load_n(&context->missing, __ATOMIC_RELAXED) == 0;
}

void context_occupy(struct contexts *all, struct context *context)
{
    context->busy = true;
    if (context->quick) {
        /* Its worker, which reads this without the lock, was stopped. */
        context->quick = false;
    }
    all->busy_count++;
}

void context_free_up(struct contexts *all, struct context *context)
{
    context->busy = false;
    all->busy_count--;
    pthread_cond_broadcast(&all->changed);
}

void context_visit(struct contexts *all, struct context *context, size_t at,
                   size_t from, size_t to)
{
    struct extent *extent = &context->extents[at];
    size_t low = at * all->extent_bytes, high = low + all->extent_bytes;
    size_t most = all->extent_bytes / CONTEXT_PAGE - extent->pages, more;

    if (extent->state != EXTENT_AWAY && extent->state != EXTENT_VISITED) {
        return;
    }
    low = from > low ? from & ~(CONTEXT_PAGE - 1) : low;
    high = to < high ? (to + CONTEXT_PAGE - 1) & ~(CONTEXT_PAGE - 1) : high;
    more = (high - low) / CONTEXT_PAGE;
    more = more < most ? more : most;
    extent->state = EXTENT_VISITED;
    extent->pages += (uint32_t)more;
    context->held += more * CONTEXT_PAGE;
    all->used_bytes += more * CONTEXT_PAGE;
}

/* ---- what may go -------------------------------------------------------- */

void context_unlist(struct contexts *all, struct context *context)
{
    int list = context->list;

    if (list < 0) {
        return;
    }
    *(context->prev != NULL ? &context->prev->next : &all->oldest[list]) =
        context->next;
    *(context->next != NULL ? &context->next->prev : &all->newest[list]) =
        context->prev;
    context->list = -1;
}

/* Whether an extent that is in memory is needed in the next phase. */
static bool extent_is_kept(const struct context *context, size_t at)
{
    return context->extents[at].state == EXTENT_RESIDENT &&
           phase_has(context, at);
}

void context_enlist(struct contexts *all, struct context *context)
{
    int missing = 0, extras = 0;
    bool is_new = phase_is_new(context);

    context_unlist(all, context);
    for (size_t at = 0; at < context->extent_count; at++) {
        const struct extent *extent = &context->extents[at];
        bool here = extent_is_here(extent);
        extras += here && !extent_is_kept(context, at);
        missing +=
            extent->state == EXTENT_AWAY && (phase_has(context, at) || is_new);
    }
    __atomic_store_n(&context->missing, missing, __ATOMIC_RELAXED);
    if (context->held == 0 || context->opens > 0 || context->keeps_resident) {
        return;
    }
    int list = extras > 0 ? 0 : 1;
    context->list = list;
    context->next = NULL;
    context->prev = all->newest[list];
    *(context->prev != NULL ? &context->prev->next : &all->oldest[list]) =
        context;
    all->newest[list] = context;
}

/* Extents of a context that go, of at least so many bytes, if it has them:
 * those that it does not need next before the others. */
static void evict_choose(const struct context *context, uint64_t bytes,
                         struct extent_list *list)
{
    uint64_t found = 0;

    list->count = 0;
    for (int kept = 0; kept < 2; kept++) {
        for (size_t at = context->extent_count;
             at-- > 0 && found < bytes && list->count < EXTENT_BATCH;) {
            const struct extent *extent = &context->extents[at];
            if (extent_is_here(extent) &&
                extent_is_kept(context, at) == (kept == 1)) {
                found += (uint64_t)extent->pages * CONTEXT_PAGE;
                list->slots[list->count] = -1;
                list->warm[list->count] = false;
                list->at[list->count++] = at;
            }
        }
        if (found > 0 && kept == 0 && context->list == 0) {
            /* Others may have such, too. */
            return;
        }
    }
}

/* Write extents of a context that is busy, and take their memory. Under the
 * lock, which is let go meanwhile. */
static bool evict_list(struct contexts *all, struct context *context,
                       struct extent_list *list, uint64_t *bytes)
{
    uint64_t pages = 0;

    for (int i = 0; i < list->count; i++) {
        size_t at = list->at[i];
        pages += context->extents[at].pages;
        if (context->extents[at].state == EXTENT_RESIDENT &&
            extent_is_framed(all, context, at)) {
            list->slots[i] = frame_get_cold(all);
        }
    }
    pthread_mutex_unlock(&all->lock);
    int code = extents_write(all, context, list, bytes);
    if (code == 0) {
        code = extents_drop(all, context, list);
    }
    if (code < 0) {
        context_fail();
    }
    pthread_mutex_lock(&all->lock);
    for (int i = 0; i < list->count; i++) {
        if (list->slots[i] >= 0) {
            frame_put(all, list->slots[i], list->warm[i]);
        }
    }
    if (code == 0) {
        context->held -= pages * CONTEXT_PAGE;
        all->used_bytes -= pages * CONTEXT_PAGE;
    }
    return code == 0;
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

/* Swap so much of a context out that is busy and not open: whether there was
 * anything. Under the lock, which is let go meanwhile. */
static bool evict_bytes(struct contexts *all, struct context *context,
                        uint64_t wanted)
{
    uint64_t bytes = 0, before = poise_clock_ns();
    uint64_t began = poise_trace_ticks(poise_trace_ring());
    struct extent_list list;
    bool well = true, any = false;

    do {
        uint64_t held = context->held;
        evict_choose(context, wanted, &list);
        well = list.count > 0 && evict_list(all, context, &list, &bytes);
        any |= well;
        held -= context->held;
        wanted -= held < wanted ? held : wanted;
    } while (well && wanted > 0 && context->list < 0);
    context_count(all, context, POISE_VRANK_SWAPPED_OUT, bytes, before);
    context_record(context, began, bytes, false);
    all->sums.swapped_out += bytes;
    return any;
}

void context_evict(struct contexts *all, struct context *context)
{
    context_unlist(all, context);
    context->is_prefetched = false;
    evict_bytes(all, context, UINT64_MAX);
    context_enlist(all, context);
}

/* The context that gives room: one of which something is not needed next, or
 * else one that was not used for longest. NULL: none may go now. */
static struct context *contexts_victim(const struct contexts *all, bool waits)
{
    for (int list = 0; list < 2; list++) {
        struct context *context = all->oldest[list];
        while (context != NULL && (context->busy || context->holds > 0 ||
                                   (!waits && context->is_prefetched))) {
            context = context->next;
        }
        if (context != NULL) {
            return context;
        }
    }
    return NULL;
}

/* Whether somebody may make room, sooner or later. */
static bool contexts_move(const struct contexts *all,
                          const struct context *self)
{
    int others = all->busy_count - (self != NULL && self->busy);

    return others > 0 || (all->threads > 1 && all->open_count > 0);
}

/* Pages of one frame go back to the kernel. Under the lock, which is let go
 * meanwhile. */
static void contexts_cool(struct contexts *all)
{
    int slot = frame_get(all);

    pthread_mutex_unlock(&all->lock);
    frame_cool(all, slot);
    pthread_mutex_lock(&all->lock);
    frame_put(all, slot, false);
}

/* Take frames for all of a list that have some. */
static void room_frames(struct contexts *all, const struct context *self,
                        struct extent_list *list)
{
    for (int i = 0; i < list->count; i++) {
        list->warm[i] = all->frames.warm_count > 0;
        list->slots[i] =
            extent_is_framed(all, self, list->at[i]) ? frame_get(all) : -1;
    }
}

/* How many of a list have frames. */
static int room_framed(const struct contexts *all, const struct context *self,
                       const struct extent_list *list)
{
    int count = 0;

    for (int i = 0; list != NULL && i < list->count; i++) {
        count += extent_is_framed(all, self, list->at[i]);
    }
    return count;
}

bool contexts_room(struct contexts *all, const struct context *self,
                   struct extent_list *frames, uint64_t bytes, bool waits)
{
    /* Where contexts share extents with holes they count for a little more than
     * they have. */
    uint64_t slack = 0;
    int framed = room_framed(all, self, frames);
    bool helpless = false, grows = true;

    for (;;) {
        uint64_t most = budget_most(all, helpless, slack);
        uint64_t used = all->used_bytes + bytes;
        int have = all->frames.warm_count;
        int lacking = grows ? frames_lacking(&all->frames, framed) : 0;
        int spare = have + lacking > framed ? have + lacking - framed : 0;
        uint64_t warm = (uint64_t)spare * all->frames.bytes;
        if (lacking > 0) {
            /* Those that are not needed now are part of what they need. */
            used += warm;
            warm = 0;
        }
        if (used + warm <= most || (used <= most && have == 0)) {
            if (lacking == 0) {
                break;
            }
            grows = frames_grow(all);
            continue;
        }
        if (used <= most) {
            contexts_cool(all);
            continue;
        }
        if (quick_stop(all)) {
            continue;
        }
        struct context *victim = contexts_victim(all, waits);
        if (victim != NULL) {
            context_occupy(all, victim);
            victim->is_prefetched = false;
            if (victim->unseen) {
                context_see(all, victim);
            }
            bool well = evict_bytes(all, victim, used - most);
            context_enlist(all, victim);
            context_free_up(all, victim);
            if (!well) {
                return false;
            }
        } else if (lacking > 0) {
            grows = false;
        } else if (!waits) {
            return false;
        } else if (!helpless) {
            helpless = true;
        } else if (contexts_move(all, self)) {
            contexts_wait(all);
        } else if (slack == 0) {
            slack = 4 * all->extent_bytes;
        } else {
            return false;
        }
    }
    all->used_bytes += bytes;
    uint64_t here = all->used_bytes - all->pending_bytes - all->taken_bytes;
    if (here > all->sums.most_bytes) {
        all->sums.most_bytes = here;
    }
    if (frames != NULL) {
        room_frames(all, self, frames);
    }
    return true;
}

/* ---- in ----------------------------------------------------------------- */

/* Whether any pending write goes to an extent. */
static bool pending_is_in(const struct contexts *all,
                          const struct context *context, size_t at)
{
    size_t low = at * all->extent_bytes, high = low + all->extent_bytes;
    const struct pending_write *write = context->pending;

    while (write != NULL &&
           (write->offset >= high || write->offset + write->bytes <= low)) {
        write = write->next;
    }
    return write != NULL;
}

/* The next extents that are to come, from *at on: whether there are any. */
static bool bring_choose(const struct contexts *all,
                         const struct context *context, bool expected,
                         size_t *at, struct extent_list *list)
{
    list->count = 0;
    for (; *at < context->extent_count && list->count < EXTENT_BATCH; ++*at) {
        const struct extent *extent = &context->extents[*at];
        bool away = extent->state == EXTENT_AWAY ||
                    (expected && extent->state == EXTENT_VISITED);
        if (away && ((expected && phase_has(context, *at)) ||
                     pending_is_in(all, context, *at))) {
            list->slots[list->count] = -1;
            list->warm[list->count] = false;
            list->at[list->count++] = *at;
        }
    }
    return list->count > 0;
}

/* Those of a list that were visited go first, to come as a whole. */
static bool bring_clean(struct contexts *all, struct context *context,
                        const struct extent_list *list)
{
    struct extent_list visited = {.count = 0};
    uint64_t bytes = 0, before = poise_clock_ns();

    for (int i = 0; i < list->count; i++) {
        if (context->extents[list->at[i]].state == EXTENT_VISITED) {
            visited.slots[visited.count] = -1;
            visited.at[visited.count++] = list->at[i];
        }
    }
    if (visited.count == 0) {
        return true;
    }
    bool well = evict_list(all, context, &visited, &bytes);
    context_count(all, context, POISE_VRANK_SWAPPED_OUT, bytes, before);
    all->sums.swapped_out += bytes;
    return well;
}

/* Bring those of a list, for which there is no room yet. Under the lock, which
 * is let go meanwhile. */
static bool bring_list(struct contexts *all, struct context *context,
                       struct extent_list *list, bool waits, uint64_t *bytes)
{
    uint64_t charge = 0;

    if (!bring_clean(all, context, list)) {
        return false;
    }
    for (int i = 0; i < list->count; i++) {
        charge += extent_charge(all, context, list->at[i]);
    }
    if (!contexts_room(all, context, list, charge, waits)) {
        return false;
    }
    context->held += charge;
    pthread_mutex_unlock(&all->lock);
    int code = extents_bring(all, context, list, bytes);
    if (code < 0) {
        context_fail();
    }
    pthread_mutex_lock(&all->lock);
    for (int i = 0; i < list->count; i++) {
        if (list->slots[i] >= 0) {
            frame_put(all, list->slots[i], false);
        }
    }
    return code == 0;
}

/* Put the pending writes in; an extent that did not come is visited for it. */
static void bring_pending(struct contexts *all, struct context *context)
{
    for (const struct pending_write *write = context->pending; write != NULL;
         write = write->next) {
        size_t end = write->offset + write->bytes;
        for (size_t at = write->offset / all->extent_bytes;
             at * all->extent_bytes < end; at++) {
            context_visit(all, context, at, write->offset, end);
        }
        memcpy(context->heap.base + write->offset, write->data, write->bytes);
    }
    pending_free(all, context);
}

bool context_bring(struct contexts *all, struct context *context, bool expected,
                   bool waits)
{
    uint64_t bytes = 0, before = poise_clock_ns();
    uint64_t began = poise_trace_ticks(poise_trace_ring());
    struct extent_list list;
    bool well = true;
    size_t at = 0;

    context_unlist(all, context);
    if (expected) {
        phase_learn(all, context);
    }
    while (well && bring_choose(all, context, expected, &at, &list)) {
        well = bring_list(all, context, &list, waits, &bytes);
    }
    /* Also if not all of it came: what is in memory is touched there from now
     * on, and these are older. */
    bring_pending(all, context);
    if (bytes > 0 || all->always) {
        context_count(all, context, POISE_VRANK_SWAPPED_IN, bytes, before);
        context_record(context, began, bytes, true);
        all->sums.swapped_in += bytes;
        all->sums.swaps += bytes > 0;
    }
    return well;
}

/* What will be in memory of a context once it has been brought. */
static uint64_t bring_held(const struct contexts *all,
                           const struct context *context, bool expected)
{
    uint64_t held = context->held;

    for (size_t at = 0; expected && at < context->extent_count; at++) {
        if (context->extents[at].state == EXTENT_AWAY &&
            phase_has(context, at)) {
            held += extent_charge(all, context, at);
        }
    }
    return held;
}

/* Room for all else that an open context may have, beside `held` bytes. One
 * that is pinned makes do with less, if that of the rank that runs leaves no
 * more: nobody touches more of it than a message's bytes. */
static bool context_rent(struct contexts *all, struct context *context,
                         uint64_t held, bool pinned)
{
    uint64_t most = context_most(context), before = context->lease;
    uint64_t lease = most > held ? most - held : 0;

    if (lease <= before) {
        all->used_bytes -= before - lease;
    } else if (!contexts_room(all, context, NULL, lease - before, true)) {
        lease = before;
        if (!pinned) {
            return false;
        }
    }
    context->lease = lease;
    all->leased_bytes += lease - before;
    return true;
}

/* It comes, in this order: what goes for the rest gives its memory to what
 * comes then. */
static bool context_come(struct contexts *all, struct context *context,
                         bool expected)
{
    if (expected) {
        phase_learn(all, context);
    }
    return context_rent(all, context, bring_held(all, context, expected),
                        !expected) &&
           context_bring(all, context, expected, true) &&
           context_rent(all, context, context->held, !expected);
}

void context_open(struct contexts *all, struct context *context, bool expected)
{
    do {
        uint64_t before = context->busy ? poise_clock_ns() : 0;
        while (context->busy) {
            contexts_wait(all);
        }
        if (before > 0) {
            context_count(all, context, POISE_VRANK_SWAPPED_IN, 0, before);
        }
    } while (quick_claim(all, context));
    context->is_prefetched = false;
    if (context->opens == 0 && !context->is_retired) {
        context_occupy(all, context);
        contexts_wait_parts(all, context);
        while (context->holds > 0) {
            contexts_wait(all);
        }
        bool well = context_come(all, context, expected);
        if (!well) {
            poise_error_set(ENOMEM, "bring a context into memory", NULL,
                            "%d MiB are needed, and the contexts of ranks that "
                            "started threads, which stay in memory, leave less",
                            (int)(context_most(context) >> 20));
            pthread_mutex_unlock(&all->lock);
            context_fail();
            pthread_mutex_lock(&all->lock);
        }
        context->opens++;
        all->open_count++;
        context_free_up(all, context);
    } else {
        context->opens++;
    }
}

/* ---- out ---------------------------------------------------------------- */

void context_see(struct contexts *all, struct context *context)
{
    struct phase *phase = context->phase;
    uint64_t held, faults;

    /* It was in another phase then. */
    if (context->unseen) {
        context->phase = context->unseen_phase;
    }
    pthread_mutex_unlock(&all->lock);
    int code = extents_look(all, context, &held, &faults);
    if (code < 0) {
        context_fail();
    }
    pthread_mutex_lock(&all->lock);
    context->phase = phase;
    context->unseen = false;
    all->sums.looks++;
    all->sums.swapped_in += faults * CONTEXT_PAGE;
    all->sums.faulted += faults * CONTEXT_PAGE;
    all->sums.swaps += faults > 0;
    context->moved[POISE_VRANK_SWAPPED_IN] += faults * CONTEXT_PAGE;
    all->used_bytes += held - context->held;
    context->held = held;
}

void context_close(struct contexts *all, struct context *context, bool suspends)
{
    if (--context->opens > 0 || context->is_retired) {
        if (suspends) {
            phase_next(all, context);
        }
        return;
    }
    all->open_count--;
    context_occupy(all, context);
    /* What it may have touched last is known as the phase that ends. */
    context->unseen = false;
    context_see(all, context);
    all->used_bytes -= context->lease;
    all->leased_bytes -= context->lease;
    context->lease = 0;
    budget_look(all);
    if (suspends) {
        phase_next(all, context);
    }
    context_enlist(all, context);
    if (suspends) {
        quick_allow(all, context);
    }
    context_free_up(all, context);
}
