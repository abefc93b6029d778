/*
 * Giving and asking for tasks between ranks. All of it is done by the
 * communicators.
 *
 * A thief has one request under way (ASK), with a number. The victim answers it
 * with tasks (GIVE) or refuses (REFUSE), and then remembers the thief: as soon
 * as it has something to spare it sends a part unasked, as request 0. (The
 * master of a central pool does not refuse, but answers later.) So an
 * idle rank asks each of its victims once and then waits; it goes round again
 * only after pauses that double, in case messages got lost.
 *
 * Tasks are never lost or doubled: from the victim's queue to the message that
 * carries them (basic, so counted by the token) they go within one turn of the
 * communicator, which takes no snapshot meanwhile; and a GIVE is taken in
 * whatever its number says. The number only tells whether it answers the open
 * request: a REFUSE of an older one, given up because its answer took too long,
 * changes nothing.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** Most that one message gives away, in bytes of queued records. */
#define STEAL_GIVE_BYTES ((size_t)256 << 10)
/** Tasks in a row without children that let a rank expect no more of them. */
#define STEAL_BARREN 2
#define STEAL_PAUSE_LEAST_NS UINT64_C(20000000)
#define STEAL_PAUSE_MOST_NS UINT64_C(1000000000)
/** An answer that takes longer than this part of the time after which messages
 * count as lost (so: a second) is not waited for. */
#define STEAL_ANSWER_PART 10

/* The ranks of NEAR: inside the own unit; and from there outwards only as far
 * as this rank is the root of what it would be asking for. */
static int steal_make_list(struct poise_pool *pool)
{
    struct task_thief *thief = &pool->net.thief;
    struct poise_peers peers = poise_world_peers(pool->world);
    int reach = POISE_LEVEL_NUMA;
    while (reach < POISE_LEVEL_WORLD &&
           poise_world_is_root(pool->world, (enum poise_level)reach)) {
        reach++;
    }
    int count = peers.first[reach + 1];
    thief->list = poise_alloc((size_t)count + 1, sizeof *thief->list);
    if (!thief->list) {
        return -ENOMEM;
    }
    memcpy(thief->list, peers.ranks, (size_t)count * sizeof *thief->list);
    thief->list_count = count;
    return 0;
}

int task_steal_init(struct poise_pool *pool)
{
    struct task_net *net = &pool->net;
    size_t size = (size_t)pool->size;
    net->thief.policy = task_policy_of(pool->options.policy);
    net->thief.victim = -1;
    net->thief.pause_ns = STEAL_PAUSE_LEAST_NS;
    pool->hands_back = net->thief.policy->central && pool->rank != 0;
    pool->master = net->thief.policy->central && pool->rank == 0;
    net->waiting.is = poise_alloc(size, sizeof *net->waiting.is);
    net->waiting.ranks = poise_alloc(size, sizeof *net->waiting.ranks);
    net->waiting.requests = poise_alloc(size, sizeof *net->waiting.requests);
    if (!net->waiting.is || !net->waiting.ranks || !net->waiting.requests) {
        return -ENOMEM;
    }
    return steal_make_list(pool);
}

void task_steal_free(struct poise_pool *pool)
{
    struct task_net *net = &pool->net;
    free(net->thief.list);
    free(net->waiting.is);
    free(net->waiting.ranks);
    free(net->waiting.requests);
}

/* ---- the victim --------------------------------------------------------- */

static size_t steal_queued(struct poise_pool *pool)
{
    size_t sum = 0;
    unsigned all = pool->worker_count + pool->dedicated;
    for (unsigned i = 0; i < all; i++) {
        sum += __atomic_load_n(&pool->workers[i].queued, __ATOMIC_SEQ_CST);
    }
    return sum;
}

/* How many tasks can be spared: one is kept for each worker that has none. */
static size_t steal_spare(struct poise_pool *pool)
{
    size_t queued = steal_queued(pool);
    if (pool->master) {
        return queued;
    }
    int idle = (int)__atomic_load_n(&pool->target, __ATOMIC_RELAXED) -
               __atomic_load_n(&pool->busy, __ATOMIC_RELAXED);
    if (idle < 1 && !pool->dedicated && pool->comm->running.kind == TASK_NONE) {
        idle = 1;
    }
    size_t keep = idle > 0 ? (size_t)idle : 0;
    return queued > keep ? queued - keep : 0;
}

bool task_can_give(struct poise_pool *pool)
{
    return pool->net.waiting.count > 0 && steal_spare(pool) > 0;
}

static struct poise_worker *steal_richest(struct poise_pool *pool)
{
    struct poise_worker *best = &pool->workers[0];
    unsigned all = pool->worker_count + pool->dedicated;
    for (unsigned i = 1; i < all; i++) {
        if (__atomic_load_n(&pool->workers[i].queued, __ATOMIC_RELAXED) >
            __atomic_load_n(&best->queued, __ATOMIC_RELAXED)) {
            best = &pool->workers[i];
        }
    }
    return best;
}

/* Move up to `want` of the oldest tasks from the fullest deques aside. The
 * master gives the newest, which keeps its memory bounded. Only this thread
 * takes snapshots, so tasks may be outside the deques meanwhile. */
static int steal_collect(struct poise_pool *pool, size_t want)
{
    struct task_deque *giving = &pool->net.giving;
    while (giving->count < want &&
           task_deque_bytes(giving) < STEAL_GIVE_BYTES) {
        struct poise_worker *from = steal_richest(pool);
        ssize_t moved = 0;
        struct task_record record;
        pthread_mutex_lock(&from->lock);
        if (pool->master && task_deque_newest(&from->queue, &record)) {
            moved = task_deque_push(giving, record.data, record.len,
                                    record.footprint);
            if (moved == 0) {
                task_deque_pop_newest(&from->queue);
                moved = 1;
            }
        } else if (!pool->master) {
            moved = task_deque_move(&from->queue, giving, want - giving->count,
                                    STEAL_GIVE_BYTES);
        }
        task_queue_publish(from);
        pthread_mutex_unlock(&from->lock);
        if (moved <= 0) {
            return (int)moved;
        }
    }
    return 0;
}

/* Pack and send what was collected. */
static int steal_send(struct poise_pool *pool, int dest, struct task_head head)
{
    struct task_net *net = &pool->net;
    struct task_record record;
    size_t at = 0;
    int code = 0;
    poise_buf_reset(&net->packed);
    while (code >= 0 && task_deque_next(&net->giving, &at, &record)) {
        code = task_pack(pool, &record, &net->packed);
    }
    head.b = net->giving.count;
    if (code >= 0 && head.b > 0) {
        task_send(pool, dest, head, net->packed.data, net->packed.len);
        pool->stats.tasks_given += head.b;
    }
    at = 0;
    while (pool->hooks.drop && task_deque_next(&net->giving, &at, &record)) {
        pool->hooks.drop(record.data, record.len, pool->hooks.arg);
    }
    net->giving.head = net->giving.tail = 0;
    net->giving.count = net->giving.held = 0;
    return code;
}

/* Give `dest` its share. Whether it got anything. */
static bool steal_give(struct poise_pool *pool, int dest, uint64_t request,
                       size_t askers)
{
    size_t spare = steal_spare(pool);
    if (spare == 0) {
        return false;
    }
    size_t share =
        pool->master ? pool->options.batch : task_share(pool, spare, askers);
    int code = steal_collect(pool, share);
    size_t count = pool->net.giving.count;
    if (code >= 0 && count > 0) {
        poise_trace_event(POISE_TRACE_STEAL_GAVE, request, (uint64_t)dest,
                          count, 0);
        code = steal_send(pool, dest,
                          (struct task_head){.kind = TASK_GIVE, .a = request});
    }
    if (code < 0) {
        task_stop(pool, code);
    }
    return code >= 0 && count > 0;
}

static void steal_remember(struct poise_pool *pool, int rank, uint64_t request)
{
    struct task_waiting *waiting = &pool->net.waiting;
    waiting->requests[rank] = request;
    if (!waiting->is[rank]) {
        waiting->is[rank] = true;
        waiting->ranks[waiting->count++] = rank;
        __atomic_fetch_add(&pool->hungry, 1, __ATOMIC_SEQ_CST);
    }
}

static int steal_recall(struct poise_pool *pool)
{
    struct task_waiting *waiting = &pool->net.waiting;
    int rank = waiting->ranks[0];
    waiting->is[rank] = false;
    waiting->count--;
    memmove(waiting->ranks, waiting->ranks + 1,
            (size_t)waiting->count * sizeof *waiting->ranks);
    __atomic_fetch_sub(&pool->hungry, 1, __ATOMIC_SEQ_CST);
    return rank;
}

void task_on_ask(struct poise_pool *pool, const struct task_arrival *in)
{
    bool running = task_state(pool) == TASK_RUNNING;
    if (pool->master) {
        steal_remember(pool, in->source, in->head.a);
        return;
    }
    if (!running || !steal_give(pool, in->source, in->head.a, 1)) {
        task_send(pool, in->source,
                  (struct task_head){.kind = TASK_REFUSE, .a = in->head.a},
                  NULL, 0);
        steal_remember(pool, in->source, 0);
    }
}

/* Serve those who were refused. */
void task_victim_turn(struct poise_pool *pool)
{
    struct task_waiting *waiting = &pool->net.waiting;
    if (waiting->count > 0 && steal_spare(pool) == 0 &&
        __atomic_load_n(&pool->spill.published, __ATOMIC_SEQ_CST) > 0) {
        task_spill_load(pool->comm);
    }
    while (waiting->count > 0 && steal_spare(pool) > 0 &&
           task_state(pool) == TASK_RUNNING) {
        size_t askers = (size_t)waiting->count;
        int rank = waiting->ranks[0];
        if (!steal_give(pool, rank, waiting->requests[rank], askers)) {
            return;
        }
        steal_recall(pool);
    }
}

/* ---- the thief ---------------------------------------------------------- */

/* Whether the worker that communicates is about to run its last task, and that
 * one looks like a leaf: asking now hides the time that the victim needs, which
 * with a slow server is a call or more. A task that was just given is no leaf.
 */
static bool steal_runs_dry(const struct poise_pool *pool)
{
    return !pool->dedicated && !pool->net.thief.policy->central &&
           pool->comm->barren >= STEAL_BARREN;
}

void task_thief_turn(struct poise_pool *pool)
{
    struct task_thief *thief = &pool->net.thief;
    if (pool->master || task_state(pool) != TASK_RUNNING) {
        return;
    }
    int idle = __atomic_load_n(&pool->hungry, __ATOMIC_SEQ_CST) -
               pool->net.waiting.count;
    if ((idle <= 0 && !steal_runs_dry(pool)) || task_work_visible(pool)) {
        return;
    }
    uint64_t now = poise_clock_ns();
    if (thief->asking &&
        now - thief->asked_at < pool->net.lost_ns / STEAL_ANSWER_PART) {
        return;
    }
    if (thief->asking && thief->policy->central) {
        /* The master answers when it has something. */
        return;
    }
    thief->asking = false;
    if (!thief->in_round) {
        if (now < thief->next_round) {
            return;
        }
        thief->in_round = true;
        thief->policy->begin(pool);
    }
    int victim = thief->policy->next(pool);
    if (victim < 0) {
        thief->in_round = false;
        thief->next_round = now + thief->pause_ns;
        thief->pause_ns = thief->pause_ns * 2 < STEAL_PAUSE_MOST_NS
                              ? thief->pause_ns * 2
                              : STEAL_PAUSE_MOST_NS;
        return;
    }
    thief->asking = true;
    thief->victim = victim;
    thief->asked_at = now;
    thief->request++;
    pool->stats.steal_asked++;
    poise_trace_event(POISE_TRACE_STEAL_ASK, thief->request, (uint64_t)victim,
                      0, 0);
    task_send(pool, victim,
              (struct task_head){.kind = TASK_ASK, .a = thief->request}, NULL,
              0);
}

void task_on_refuse(struct poise_pool *pool, const struct task_arrival *in)
{
    struct task_thief *thief = &pool->net.thief;
    if (thief->asking && in->head.a == thief->request) {
        thief->asking = false;
        pool->stats.steal_refused++;
        poise_trace_event(POISE_TRACE_STEAL_REFUSED, in->head.a,
                          (uint64_t)in->source, 0, 0);
    }
}

/* Tasks arrived: answers, shares unasked for, and what workers return to the
 * master. */
void task_on_tasks(struct poise_pool *pool, const struct task_arrival *in)
{
    struct task_net *net = &pool->net;
    if (in->head.kind == TASK_GIVE) {
        struct task_thief *thief = &net->thief;
        pool->comm->barren = 0;
        thief->asking &= in->head.a != thief->request;
        thief->in_round = false;
        thief->next_round = 0;
        thief->pause_ns = STEAL_PAUSE_LEAST_NS;
        pool->stats.steal_got++;
        poise_trace_event(POISE_TRACE_STEAL_GOT, in->head.a,
                          (uint64_t)in->source, in->head.b, 0);
    }
    if (task_state(pool) != TASK_RUNNING) {
        return;
    }
    int code = task_take_in(pool, in->body, in->len);
    if (code < 0) {
        task_stop(pool, code);
    }
}

int task_take_in(struct poise_pool *pool, const void *blobs, size_t len)
{
    struct poise_worker *comm = pool->comm;
    struct task_deque got = {0};
    ssize_t count = task_unpack(pool, blobs, len, &got, &pool->net.scratch);
    if (count >= 0) {
        pthread_mutex_lock(&comm->lock);
        int code = task_deque_reserve(&comm->queue, got.tail - got.head);
        if (code == 0) {
            task_deque_append(&got, &comm->queue);
            code = task_spill_check(comm);
        }
        task_queue_publish(comm);
        pthread_mutex_unlock(&comm->lock);
        count = code;
    }
    task_deque_drop(pool, &got);
    if (__atomic_load_n(&pool->asleep, __ATOMIC_SEQ_CST) > 0) {
        poise_event_signal(&pool->work);
    }
    return count < 0 ? (int)count : 0;
}

/* Algorithm 1, line 29: the new tasks go to the master. */
void task_hand_back(struct poise_worker *worker, size_t before)
{
    struct poise_pool *pool = worker->pool;
    struct task_deque *giving = &pool->net.giving;
    size_t keep = pool->options.policy == POISE_POLICY_CENTRAL_KEEP;
    struct task_record record;
    int code = 0;
    pthread_mutex_lock(&worker->lock);
    while (code == 0 && worker->queue.count > before + keep) {
        task_deque_newest(&worker->queue, &record);
        code =
            task_deque_push(giving, record.data, record.len, record.footprint);
        if (code == 0) {
            task_deque_pop_newest(&worker->queue);
        }
    }
    task_queue_publish(worker);
    pthread_mutex_unlock(&worker->lock);
    if (code == 0 && giving->count > 0) {
        code = steal_send(pool, 0, (struct task_head){.kind = TASK_RETURN});
    }
    if (code < 0) {
        task_stop(pool, code);
    }
}
