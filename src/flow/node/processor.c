/*
 * Processors: threads that compute. Each takes some ready tasks under the
 * node's lock, computes them without it, and takes the lock once more to say
 * that they are done; short tasks several at a time, so that what the lock
 * costs is shared. Who finds nothing looks for a little while without the lock,
 * where another processor may soon have something, before it sleeps.
 */
#include "internal.h"

#include <poise/trace.h>
#include <poise/wait.h>

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

/** Tasks that are taken at a time, at most. */
#define BATCH_MOST 16
/** ... and for how long, so that others do not wait for what is done: about
 * what it takes to wake a thread. */
#define BATCH_NS 10000
/** To look for so long before sleeping costs, at worst, as much again as to
 * sleep and be woken. */
#define SPIN_NS 10000
/** Spare memories of one size. */
#define SPARES_MOST 64
#define SPARE_LEAST 16

/* ---- memory ------------------------------------------------------------- */

/* The size that holds `len`; FLOW_SPARE_SIZES: none does. */
static unsigned size_of(size_t len)
{
    unsigned size = 0;
    while (size < FLOW_SPARE_SIZES && (size_t)SPARE_LEAST << size < len) {
        size++;
    }
    return size;
}

struct flow_made *flow_processor_make(struct flow_processor *processor,
                                      size_t len)
{
    unsigned size = processor ? size_of(len) : FLOW_SPARE_SIZES;
    if (size == FLOW_SPARE_SIZES) {
        return flow_made_create(len);
    }
    struct flow_made *made = processor->spare[size];
    if (made) {
        processor->spare[size] = made->next;
        processor->spares[size]--;
        made->next = NULL;
    } else {
        made = flow_made_create((size_t)SPARE_LEAST << size);
    }
    if (made) {
        made->len = len;
    }
    return made;
}

struct flow_made *flow_node_trash(struct flow_node *node)
{
    struct flow_made *trash = node->trash;
    node->trash = NULL;
    return trash;
}

void flow_trash_free(struct flow_made *trash)
{
    while (trash) {
        struct flow_made *made = trash;
        trash = made->next;
        free(made);
    }
}

void flow_processor_reuse(struct flow_processor *processor,
                          struct flow_made *trash)
{
    while (trash) {
        struct flow_made *made = trash;
        unsigned size = size_of(made->cap);
        trash = made->next;
        if (size < FLOW_SPARE_SIZES &&
            made->cap == (size_t)SPARE_LEAST << size &&
            processor->spares[size] < SPARES_MOST) {
            made->next = processor->spare[size];
            processor->spare[size] = made;
            processor->spares[size]++;
        } else {
            free(made);
        }
    }
}

/* ---- taking tasks ------------------------------------------------------- */

/* Whether a task may run although memory is short: only the oldest versions
 * may, which nobody else has to wait for. */
static bool has_room(const struct flow_node *node,
                     const struct poise_flow_task *task)
{
    uint64_t most = node->options->memory_bytes;
    int64_t version = task->address.version;
    if (most == 0 || node->bytes <= most) {
        return true;
    }
    return version <= node->oldest && version <= node->oldest_running;
}

static struct poise_flow_task *task_next(struct flow_node *node)
{
    while (node->ready.count > 0) {
        struct poise_flow_task *task = node->ready.items[0];
        if (task->state == FLOW_DROPPED) {
            flow_task_free(flow_heap_pop(&node->ready));
            continue;
        }
        return has_room(node, task) ? flow_heap_pop(&node->ready) : NULL;
    }
    return NULL;
}

/* How many to take: this processor's part of what is ready. One after the other
 * where memory is limited, where errors are looked for, and where a task may
 * make others needless. */
static size_t batch_size(const struct flow_node *node)
{
    const struct poise_flow_options *options = node->options;
    size_t part = node->ready.count / node->threads;
    size_t most = node->task_ns > 0 ? BATCH_NS / node->task_ns : 1;
    most = most < BATCH_MOST ? most : BATCH_MOST;
    part = part < most ? part : most;
    bool one = options->memory_bytes > 0 || options->check > 0 || node->aside;
    return part < 1 || one ? 1 : part;
}

static size_t tasks_take(struct flow_processor *processor,
                         struct poise_flow_task **tasks)
{
    struct flow_node *node = processor->node;
    size_t most = batch_size(node), count = 0;
    while (count < most && (tasks[count] = task_next(node))) {
        struct poise_flow_task *task = tasks[count++];
        task->state = FLOW_RUNNING;
        task->processor = processor;
        if (task->address.version < node->oldest_running) {
            node->oldest_running = task->address.version;
        }
    }
    node->running += (unsigned)count;
    atomic_store_explicit(&node->ready_hint, node->ready.count,
                          memory_order_relaxed);
    if (count > 0 && node->ready.count > 0 && node->idle > 0) {
        pthread_cond_signal(&node->work); /* which wakes the next one */
    }
    return count;
}

/* ---- computing ---------------------------------------------------------- */

/* A block of a version as one number: 20 bits of each of its indices. */
static uint64_t block_number(const struct poise_flow_address *address)
{
    uint64_t number = 0;
    for (int i = 0; i < POISE_FLOW_DIMS_MOST; i++) {
        number = number << 20 | ((uint64_t)address->index[i] & 0xfffff);
    }
    return number;
}

static int task_compute(struct flow_node *node, struct poise_flow_task *task)
{
    const struct poise_flow_app *app = &node->job->app;
    const struct poise_flow_chunk *shape = flow_file(node, task->address.file);
    struct poise_trace_ring *ring = poise_trace_ring();
    uint64_t ticks = poise_trace_ticks(ring);
    poise_error_clear();
    int code = app->compute(task, &task->address, shape, app->arg);
    poise_trace_put(ring, POISE_TRACE_BLOCK, (uint64_t)task->address.version,
                    ticks, poise_trace_ticks(ring),
                    block_number(&task->address), (uint64_t)-code);
    return code;
}

/* One task was computed with `code`, in so much time. The lock is held. */
static int task_done(struct flow_node *node, struct poise_flow_task *task,
                     int code, uint64_t took_ns)
{
    node->stats.compute_ns += took_ns;
    node->task_ns = node->task_ns - node->task_ns / 8 + took_ns / 8 + 1;
    if (code == 0 && node->options->check > 0) {
        code = flow_check_lists(node, task);
    }
    if (node->net && code == 0 && !task->abandoned) {
        node->net->computed(node->net, &task->block->key, took_ns);
    }
    task->processor = NULL;
    node->aside |= task->written_count > 1;
    code = flow_task_end(task, code);
    if (code < 0) {
        flow_task_tidy(task);
    }
    return code;
}

/* Some tasks, from ready to done. The lock is held before and after. */
static int tasks_run(struct flow_processor *processor,
                     struct poise_flow_task **tasks, size_t count)
{
    struct flow_node *node = processor->node;
    struct flow_made *trash = flow_node_trash(node);
    uint64_t took[BATCH_MOST], now;
    int codes[BATCH_MOST], code = 0;
    size_t done = 0;
    pthread_mutex_unlock(&node->lock);

    flow_processor_reuse(processor, trash);
    now = poise_clock_ns();
    for (; done < count && (code == 0 || code == -EAGAIN); done++) {
        uint64_t began = now;
        codes[done] = code = task_compute(node, tasks[done]);
        now = poise_clock_ns();
        took[done] = now - began;
        if (code == 0 && node->options->check > 0) {
            codes[done] = code = flow_check_compute(tasks[done]);
        }
    }

    pthread_mutex_lock(&node->lock);
    node->now_ns = now;
    node->settles = true;
    node->running -= (unsigned)count;
    if (node->running == 0) {
        node->oldest_running = INT64_MAX;
    }
    if (code < 0 && code != -EAGAIN) {
        /* First, before the words of its error are gone; then all ends. */
        code = task_done(node, tasks[done - 1], code, took[done - 1]);
    } else {
        code = 0;
    }
    for (size_t i = 0; code == 0 && i < done; i++) {
        code = task_done(node, tasks[i], codes[i], took[i]);
    }
    code = code == 0 ? flow_node_settle(node) : code;
    node->settles = false;
    return code;
}

/* ---- waiting ------------------------------------------------------------ */

/* Whether there is something to do soon. Without the lock. */
static bool look_for_ready(struct flow_node *node)
{
    uint64_t until = poise_clock_ns() + SPIN_NS;
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&node->ready_hint, memory_order_relaxed) >
                0) {
                return true;
            }
            poise_pause();
        }
    } while (poise_clock_ns() < until);
    return false;
}

/* Nothing can be done now. */
static int task_wait(struct flow_node *node, bool looks)
{
    struct poise_flow_address stuck;
    bool throttled = node->ready.count > 0;
    if (!node->net && !flow_node_is_done(node) &&
        flow_node_is_stuck(node, &stuck)) {
        return flow_explain(node->job, node, &stuck);
    }
    uint64_t began = poise_clock_ns();
    if (!throttled && looks && node->running > 0) {
        pthread_mutex_unlock(&node->lock);
        look_for_ready(node);
        pthread_mutex_lock(&node->lock);
    }
    if (!node->stop && (node->ready.count == 0 || throttled)) {
        node->idle++;
        if (node->net && node->running == 0) {
            node->net->notify(node->net);
        }
        pthread_cond_wait(&node->work, &node->lock);
        node->idle--;
    }
    uint64_t waited = poise_clock_ns() - began;
    node->stats.wait_ns += waited;
    node->stats.throttled_ns += throttled ? waited : 0;
    return 0;
}

static bool has_several_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) > 1;
}

void flow_node_work(struct flow_node *node)
{
    struct flow_processor processor = {.node = node};
    struct poise_flow_task *tasks[BATCH_MOST];
    bool looks = node->threads > 1 && has_several_cpus();
    pthread_mutex_lock(&node->lock);
    while (!node->stop) {
        size_t count = tasks_take(&processor, tasks);
        int code = count > 0 ? tasks_run(&processor, tasks, count)
                             : task_wait(node, looks);
        if (code < 0) {
            flow_node_fail(node, code);
        } else if (count > 0 && node->idle > 0 && node->ready.count > 1) {
            pthread_cond_signal(&node->work); /* one is for this thread */
        }
    }
    pthread_mutex_unlock(&node->lock);
    for (unsigned i = 0; i < FLOW_SPARE_SIZES; i++) {
        flow_trash_free(processor.spare[i]);
    }
}
