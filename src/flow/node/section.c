/*
 * The two ways to touch a node: inside, together with other processors, or
 * alone.
 *
 * A processor says that it is inside, and looks whether somebody has the node;
 * who wants the node says so, and looks whether anybody is inside. Both are
 * sequentially consistent, so at least one of the two sees the other (Dekker),
 * and it is the processor that steps back. So the common way writes a line of
 * the processor's own only, and pays for it who has the node: it waits for all
 * processors to leave, which is soon, as nothing waits inside.
 *
 * In the same way a processor that looks for tasks takes them from the heap of
 * another one which is not inside; it steps back if it is, and so never waits.
 */
#include "state.h"

#include <poise/wait.h>

#include <sched.h>

/** Looks before the processor is given away: who is waited for may have none.
 * Longer than what is done inside takes. */
#define LOOKS_MOST 200

static void look(unsigned *looks)
{
    if (++*looks % LOOKS_MOST == 0) {
        sched_yield();
    } else {
        poise_pause();
    }
}

/* ---- alone -------------------------------------------------------------- */

/* The mutex is locked. */
static void keep_out(struct flow_node *node)
{
    atomic_store(&node->had, true);
    for (unsigned p = 0; p < node->threads; p++) {
        unsigned looks = 0;
        while (atomic_load(&node->processors[p].inside)) {
            look(&looks);
        }
    }
    for (unsigned p = 0; p < node->threads; p++) {
        if (flow_has_given(&node->processors[p])) {
            node->processors[p].now_ns = poise_clock_ns();
            flow_take_given(&node->processors[p]);
        }
    }
}

void flow_node_lock(struct flow_node *node)
{
    pthread_mutex_lock(&node->lock);
    keep_out(node);
}

void flow_node_unlock(struct flow_node *node)
{
    /* While careful, a ready task may have no room: who makes it ready, or
     * makes room, says so. */
    if (node->idle > 0 && !node->careful && flow_node_ready(node) > 0) {
        pthread_cond_signal(&node->work);
    }
    atomic_store_explicit(&node->had, false, memory_order_release);
    pthread_mutex_unlock(&node->lock);
}

void flow_node_wait(struct flow_node *node, pthread_cond_t *condition)
{
    atomic_store_explicit(&node->had, false, memory_order_release);
    pthread_cond_wait(condition, &node->lock);
    keep_out(node);
}

void flow_node_wait_ns(struct flow_node *node, pthread_cond_t *condition,
                       uint64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    atomic_store_explicit(&node->had, false, memory_order_release);
    pthread_cond_timedwait(condition, &node->lock, &until);
    keep_out(node);
}

void flow_wake(struct flow_node *node)
{
    if (atomic_load_explicit(&node->idle, memory_order_relaxed) == 0 ||
        atomic_exchange_explicit(&node->waking, true, memory_order_relaxed)) {
        return;
    }
    /* Locked, or it may be between looking for tasks and waiting. */
    pthread_mutex_lock(&node->lock);
    pthread_cond_signal(&node->work);
    pthread_mutex_unlock(&node->lock);
}

/* ---- inside ------------------------------------------------------------- */

/* While somebody has the node, most often for less than it takes to sleep and
 * be woken. */
static void stay_outside(struct flow_node *node)
{
    for (unsigned looks = 0; looks < LOOKS_MOST; looks++) {
        if (!atomic_load(&node->had)) {
            return;
        }
        poise_pause();
    }
    pthread_mutex_lock(&node->lock);
    pthread_mutex_unlock(&node->lock);
}

void flow_enter(struct flow_processor *processor)
{
    struct flow_node *node = processor->node;
    unsigned looks = 0;
    for (;;) {
        atomic_exchange(&processor->inside, true);
        bool had = atomic_load(&node->had);
        if (!had && !atomic_load(&processor->visited)) {
            return;
        }
        atomic_store_explicit(&processor->inside, false, memory_order_release);
        if (had) {
            stay_outside(node);
        } else {
            look(&looks);
        }
    }
}

void flow_leave(struct flow_processor *processor)
{
    atomic_store_explicit(&processor->inside, false, memory_order_release);
}

void flow_ready_tell(struct flow_processor *processor)
{
    unsigned count =
        processor->heap.count < 2 ? (unsigned)processor->heap.count : 2;
    if (atomic_load_explicit(&processor->ready, memory_order_relaxed) !=
        count) {
        atomic_store_explicit(&processor->ready, count, memory_order_relaxed);
    }
}

bool flow_has_coming(const struct flow_processor *processor)
{
    return atomic_load_explicit(&processor->coming, memory_order_relaxed) ||
           atomic_load_explicit(&processor->coming_shares,
                                memory_order_relaxed);
}

bool flow_has_given(const struct flow_processor *processor)
{
    return atomic_load_explicit(&processor->given, memory_order_relaxed) ||
           atomic_load_explicit(&processor->shares, memory_order_relaxed) ||
           flow_has_coming(processor);
}

static struct poise_flow_task *given_take(struct flow_processor *processor)
{
    return atomic_load_explicit(&processor->given, memory_order_relaxed)
               ? atomic_exchange_explicit(&processor->given, NULL,
                                          memory_order_acquire)
               : NULL;
}

static struct flow_share *shares_take(struct flow_processor *processor)
{
    return atomic_load_explicit(&processor->shares, memory_order_relaxed)
               ? atomic_exchange_explicit(&processor->shares, NULL,
                                          memory_order_acquire)
               : NULL;
}

static struct poise_flow_task *coming_take(struct flow_processor *processor)
{
    struct poise_flow_task *task =
        atomic_load_explicit(&processor->coming, memory_order_relaxed);
    atomic_store_explicit(&processor->coming, NULL, memory_order_relaxed);
    return task;
}

static struct flow_share *coming_share(const struct flow_processor *processor)
{
    return atomic_load_explicit(&processor->coming_shares,
                                memory_order_relaxed);
}

static void coming_shares_set(struct flow_processor *processor,
                              struct flow_share *shares)
{
    atomic_store_explicit(&processor->coming_shares, shares,
                          memory_order_relaxed);
    processor->comes = false;
    if (shares) {
        flow_line_fetch(shares);
    }
}

static void make_ready(struct flow_processor *processor,
                       struct poise_flow_task *task)
{
    while (task) {
        struct poise_flow_task *next = task->next;
        flow_task_is_ready(processor, task);
        task = next;
    }
}

void flow_take_given(struct flow_processor *processor)
{
    struct flow_share *shares = coming_share(processor);
    coming_shares_set(processor, NULL);
    flow_open_shares(processor, shares);
    flow_line_fetch((const void *)&processor->given);
    flow_open_shares(processor, shares_take(processor));
    make_ready(processor, coming_take(processor));
    make_ready(processor, given_take(processor));
}

/* A step further with the first of its shares. */
static void share_soon(struct flow_processor *processor)
{
    struct flow_share *share = coming_share(processor);
    if (!share) {
        coming_shares_set(processor, shares_take(processor));
    } else if (!processor->comes) {
        processor->comes = true;
        flow_line_fetch(share->left);
        __builtin_prefetch(share->row);
    } else {
        coming_shares_set(processor, share->next);
        flow_open_share(processor, share);
    }
}

void flow_take_given_soon(struct flow_processor *processor)
{
    make_ready(processor, coming_take(processor));
    if (processor->heap.count == 0) {
        flow_take_given(processor);
        return;
    }
    flow_line_fetch((const void *)&processor->given);
    struct poise_flow_task *task = given_take(processor);
    if (task) {
        flow_line_fetch(task);
        atomic_store_explicit(&processor->coming, task, memory_order_relaxed);
    }
    share_soon(processor);
}

/* The last ones of a heap can be taken without order being lost. */
static bool take_half(struct flow_processor *to, struct flow_processor *from)
{
    size_t half = (from->heap.count + 1) / 2, taken = 0;
    while (taken < half) {
        struct poise_flow_task *task = from->heap.items[from->heap.count - 1];
        from->heap.count--;
        if (flow_heap_push(&to->heap, task) < 0) {
            task->heap = &from->heap;
            task->heap_at = from->heap.count++;
            break;
        }
        taken++;
    }
    flow_ready_tell(from);
    flow_ready_tell(to);
    return taken > 0;
}

static bool visit(struct flow_processor *processor,
                  struct flow_processor *other, unsigned least)
{
    bool free = false, taken = false;
    if ((atomic_load_explicit(&other->ready, memory_order_relaxed) < least &&
         !flow_has_given(other)) ||
        !atomic_compare_exchange_strong(&other->visited, &free, true)) {
        return false;
    }
    if (!atomic_load(&other->inside)) {
        other->now_ns = processor->now_ns;
        flow_take_given(other);
        taken = other->heap.count >= least && take_half(processor, other);
    }
    atomic_store_explicit(&other->visited, false, memory_order_release);
    return taken;
}

bool flow_steal(struct flow_processor *processor, unsigned least)
{
    struct flow_node *node = processor->node;
    unsigned self = (unsigned)(processor - node->processors);
    for (unsigned i = 1; i < node->threads; i++) {
        unsigned at = (self + i) % node->threads;
        if (visit(processor, &node->processors[at], least)) {
            return true;
        }
    }
    return false;
}
