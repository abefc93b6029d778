/*
 * Processors: threads that compute. Each goes inside to end a task and to take
 * the next one of its own; where more is to be done it has the node for that
 * (section.c). Who has no task takes half of another one's, looks for some for
 * a little while, and sleeps.
 */
#include "state.h"

#include <poise/trace.h>
#include <poise/wait.h>

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>

/** To look for so long before sleeping costs, at worst, as much again as to
 * sleep and be woken. */
#define SPIN_NS 10000
/** ... between short tasks, if each thread of this host's nodes has a processor
 * of its own. Who sleeps is woken over a socket, by threads that take a
 * processor from others, who then look in vain and sleep in turn: that goes on
 * for long, and costs each some 15 us a task. */
#define SPIN_SHORT_NS 50000
/** So long the last task of another processor is left to it: a few times what
 * it takes to move what a task touches from one cache to another. */
#define MODEST_NS 5000
/** ... and so long all of them: it may soon get some of its own, whose memory
 * is in its cache. */
#define PATIENT_NS 1500
/** Who computes longer tasks than this does not look between them what others
 * of this host wrote: it is told, which takes about as long. */
#define LOOKS_MOST_NS 50000
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
    return version <= node->oldest && version <= flow_node_oldest(node);
}

static struct poise_flow_task *take_from(struct flow_processor *processor,
                                         struct flow_heap *heap)
{
    struct poise_flow_task *task = flow_heap_pop(heap);
    if (task) {
        task->state = FLOW_RUNNING;
        task->processor = processor;
        processor->current = task;
    }
    flow_ready_tell(processor);
    return task;
}

/* The node is had: any task may be taken. */
static struct poise_flow_task *take_any(struct flow_processor *processor)
{
    struct flow_node *node = processor->node;
    if (node->careful) {
        return node->ready.count > 0 && has_room(node, node->ready.items[0])
                   ? take_from(processor, &node->ready)
                   : NULL;
    }
    struct flow_processor *from = processor;
    for (unsigned p = 0; p < node->threads && from->heap.count == 0; p++) {
        from = &node->processors[p];
    }
    struct poise_flow_task *task = take_from(processor, &from->heap);
    flow_ready_tell(from);
    return task;
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

/* From now on one task at a time. */
static int become_careful(struct flow_node *node)
{
    int code = 0;
    node->careful = true;
    for (unsigned p = 0; p < node->threads; p++) {
        struct flow_processor *processor = &node->processors[p];
        struct flow_heap *heap = &processor->heap;
        while (code == 0 && heap->count > 0) {
            code = flow_heap_push(&node->ready, heap->items[--heap->count]);
        }
        flow_ready_tell(processor);
    }
    return code;
}

/* A task ended in a way that is not common. The node is had. */
static int task_done(struct flow_processor *processor,
                     struct poise_flow_task *task, int code, uint64_t took_ns)
{
    struct flow_node *node = processor->node;
    struct flow_key key = flow_block_key(task->block);
    const struct flow_segment *segment =
        flow_segment_of(node, key.file, key.version);
    flow_node_count(node);
    node->stats.compute_ns += took_ns;
    if (code == 0 && node->options->check > 0) {
        code = flow_check_lists(node, task);
    }
    if (node->net && code == 0 && !task->abandoned && segment &&
        key.version > flow_file(node, key.file)->versions.from) {
        node->net->computed(node->net, key.file, segment->from, 1, took_ns);
    }
    if (code == 0 && task->written_count > 1 && !node->careful) {
        code = become_careful(node);
    }
    task->processor = NULL;
    processor->current = NULL;
    code = flow_task_end(task, code);
    if (code < 0) {
        flow_task_tidy(task);
    }
    return code;
}

/* With the node had: end `task` (NULL: there is none), do what was left, and
 * take another one. */
static struct poise_flow_task *alone(struct flow_processor *processor,
                                     struct poise_flow_task *task, int code,
                                     uint64_t took_ns)
{
    struct flow_node *node = processor->node;
    struct poise_flow_task *next = NULL;
    flow_node_lock(node);
    node->now_ns = processor->clock_ns;
    /* First, before the words of its error are gone. */
    code = task && !node->stop ? task_done(processor, task, code, took_ns) : 0;
    if (processor->settles) {
        processor->settles = false;
        node->advance = true;
    }
    if (processor->completes) {
        processor->completes = false;
        pthread_cond_broadcast(&node->event);
    }
    if (code == 0 && !node->stop && node->net) {
        code = node->net->receive(node->net);
    }
    code = code == 0 && !node->stop ? flow_node_settle(node) : code;
    if (code < 0) {
        flow_node_fail(node, code);
    }
    if (!node->stop) {
        next = take_any(processor);
    }
    struct flow_made *trash = flow_node_trash(node);
    bool others = node->careful && node->ready.count > 0;
    flow_node_unlock(node);
    flow_processor_reuse(processor, trash);
    if (next && others) {
        flow_wake(node);
    }
    return next;
}

/* Whether others of this host wrote something for this node; `looks`: it will
 * be asked again soon. */
static bool is_due(const struct flow_node *node, bool looks)
{
    struct flow_net *net = node->net;
    return net && net->look(net, looks) && net->due(net);
}

static void count_times(struct flow_processor *processor)
{
    processor->now_ns = processor->clock_ns;
    processor->stats.wait_ns += processor->waited_ns;
    processor->stats.throttled_ns += processor->throttled_ns;
    processor->waited_ns = processor->throttled_ns = 0;
}

/* End a task, and take another one; `out` is NULL if there is none. False: the
 * node stops. */
static bool step(struct flow_processor *processor, struct poise_flow_task *task,
                 int code, uint64_t took_ns, struct poise_flow_task **out)
{
    struct flow_node *node = processor->node;
    *out = NULL;
    flow_enter(processor);
    if (node->stop) {
        flow_leave(processor);
        return false;
    }
    count_times(processor);
    if (task && flow_end(processor, task, code, took_ns)) {
        task = NULL;
    }
    if (took_ns < LOOKS_MOST_NS) {
        flow_take_given_soon(processor);
    } else {
        flow_take_given(processor);
    }
    bool more = task || processor->slow || processor->settles ||
                processor->completes || node->careful ||
                is_due(node, took_ns < LOOKS_MOST_NS);
    if (!more) {
        *out = take_from(processor, &processor->heap);
    }
    if (*out && node->threads > 1) {
        flow_end_fetch_soon(processor, *out);
    }
    struct flow_made *trash = processor->trash;
    processor->trash = NULL;
    flow_leave(processor);
    flow_processor_reuse(processor, trash);
    if (more) {
        *out = alone(processor, task, code, took_ns);
    }
    if (processor->gave || flow_has_coming(processor) ||
        atomic_load_explicit(&processor->ready, memory_order_relaxed) > 0) {
        processor->gave = false;
        flow_wake(node);
    }
    return true;
}

/* ---- waiting ------------------------------------------------------------ */

/* The most ready tasks that one processor has, up to 2. */
static unsigned most_ready(const struct flow_node *node)
{
    unsigned most = 0;
    for (unsigned p = 0; p < node->threads; p++) {
        unsigned count = atomic_load_explicit(&node->processors[p].ready,
                                              memory_order_relaxed);
        most = count > most ? count : most;
    }
    return most;
}

/* Take tasks of others, where that is soon possible. `due`: other nodes wrote
 * something, which whoever has the node takes. */
static struct poise_flow_task *look_for_ready(struct flow_processor *processor,
                                              uint64_t spin_ns, bool *due)
{
    struct flow_node *node = processor->node;
    uint64_t began = poise_clock_ns(), now = began;
    while (now - began < spin_ns) {
        *due = is_due(node, true);
        if (*due) {
            return NULL;
        }
        unsigned least = now - began < MODEST_NS ? 2 : 1;
        if (flow_has_given(processor) ||
            (now - began >= PATIENT_NS && most_ready(node) >= least)) {
            struct poise_flow_task *task = NULL;
            flow_enter(processor);
            processor->now_ns = now;
            bool more = !node->stop && !node->careful;
            flow_take_given(processor);
            if (more &&
                (processor->heap.count > 0 || flow_steal(processor, least))) {
                task = take_from(processor, &processor->heap);
            }
            more = more && !processor->slow;
            flow_leave(processor);
            if (task || !more) {
                return task;
            }
        }
        for (int i = 0; i < 16; i++) {
            poise_pause();
        }
        now = poise_clock_ns();
    }
    return NULL;
}

/* What was given to others may have been left to who has the node: when they
 * sleep, too, nobody would do it. */
static bool is_anything_left(const struct flow_node *node)
{
    bool left = false;
    for (unsigned p = 0; p < node->threads; p++) {
        left |= node->processors[p].slow != NULL;
    }
    return left;
}

/* What came while this processor had nothing to do, and before it sleeps. */
static int receive_idle(struct flow_node *node)
{
    int code = 0;
    if (is_due(node, false)) {
        node->idle++;
        node->now_ns = poise_clock_ns();
        code = node->net->receive(node->net);
        code = code == 0 ? flow_node_settle(node) : code;
        node->idle--;
    }
    return code;
}

/* Sleep, unless there is a task, which is returned. */
static struct poise_flow_task *sleep_for_ready(struct flow_processor *processor,
                                               bool *throttled)
{
    struct flow_node *node = processor->node;
    struct poise_flow_address stuck;
    flow_node_lock(node);
    int code = node->stop || !node->net ? 0 : receive_idle(node);
    if (code < 0) {
        flow_node_fail(node, code);
    }
    struct poise_flow_task *task = node->stop ? NULL : take_any(processor);
    if (!task && !node->stop && is_anything_left(node)) {
        processor->settles = true;
        flow_node_unlock(node);
        return NULL;
    }
    if (task || node->stop) {
        flow_node_unlock(node);
        return task;
    }
    *throttled = node->ready.count > 0;
    if (!node->net && !flow_node_is_done(node) &&
        flow_node_is_stuck(node, &stuck)) {
        flow_node_fail(node, flow_explain(node->job, node, &stuck));
    } else {
        node->idle++;
        node->waking = false;
        if (node->net && !flow_node_is_running(node)) {
            node->net->rest(node->net);
        }
        flow_node_wait(node, &node->work);
        node->idle--;
        node->waking = false;
    }
    flow_node_unlock(node);
    return NULL;
}

/* For how long a processor looks before it sleeps. Where others wait for the
 * processor's place, they may be who it waits for. */
static uint64_t spin_ns(const struct flow_node *node, unsigned cpus,
                        uint64_t took_ns)
{
    unsigned near = atomic_load_explicit(&node->near, memory_order_relaxed);
    bool crowded = (near + 1) * node->threads > cpus;
    return cpus == 1                             ? 0
           : crowded || took_ns >= LOOKS_MOST_NS ? SPIN_NS
                                                 : SPIN_SHORT_NS;
}

/* Look for a task for so long, and sleep then. NULL: there is none yet. */
static struct poise_flow_task *wait_for_ready(struct flow_processor *processor,
                                              uint64_t spin_ns)
{
    struct flow_node *node = processor->node;
    bool throttled = false, due = false;
    uint64_t began = poise_clock_ns();
    struct poise_flow_task *task = NULL;
    if (spin_ns > 0 && (node->threads > 1 ||
                        (node->net && node->net->look(node->net, true)))) {
        task = look_for_ready(processor, spin_ns, &due);
    }
    /* Where something came, more will, though this was no task's last. */
    if (!task && !(due && spin_ns > SPIN_NS)) {
        task = sleep_for_ready(processor, &throttled);
    }
    processor->clock_ns = poise_clock_ns();
    processor->waited_ns += processor->clock_ns - began;
    processor->throttled_ns += throttled ? processor->clock_ns - began : 0;
    if (task && most_ready(node) > 0) {
        flow_wake(node); /* there is work for one more, and this one is busy */
    }
    return task;
}

static unsigned count_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0
               ? (unsigned)CPU_COUNT(&set)
               : UINT_MAX;
}

void flow_node_work(struct flow_node *node)
{
    struct flow_processor *processor =
        &node->processors[atomic_fetch_add(&node->started, 1)];
    struct poise_flow_task *task = NULL;
    unsigned cpus = count_cpus();
    uint64_t took_ns = 0;
    int code = 0;
    flow_watch_thread(processor);
    processor->clock_ns = poise_clock_ns();
    while (step(processor, task, code, took_ns, &task)) {
        if (!task &&
            !(task = wait_for_ready(processor, spin_ns(node, cpus, took_ns)))) {
            continue;
        }
        uint64_t began = processor->clock_ns;
        if (node->threads > 1) {
            flow_end_fetch(task);
        }
        code = task_compute(node, task);
        processor->clock_ns = poise_clock_ns();
        took_ns = processor->clock_ns - began;
        if (code == 0 && node->options->check > 0) {
            code = flow_check_compute(task);
        }
    }
    flow_watch_thread_end(processor);
}
