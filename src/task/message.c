/*
 * Messages between the ranks of a pool: how they are made, counted for the
 * token and for snapshots, and handed to the file that knows their kind. Only
 * the communicator gets here.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** All of the pool's messages. */
#define NET_TAG 32
#define NET_LOST_NS UINT64_C(10000000000)
#define NET_LOOK_NS UINT64_C(20000000)

static const struct {
    void (*handle)(struct poise_pool *pool, const struct task_arrival *in);
    bool basic;
} net_kinds[TASK_MESSAGES] = {
    [TASK_ASK] = {task_on_ask, false},
    [TASK_REFUSE] = {task_on_refuse, false},
    [TASK_GIVE] = {task_on_tasks, true},
    [TASK_RETURN] = {task_on_tasks, true},
    [TASK_SEND] = {task_on_send, true},
    [TASK_EMIT] = {task_on_emit, true},
    [TASK_CREDIT] = {task_on_credit, false},
    [TASK_TOKEN] = {task_on_token, false},
    [TASK_STOP] = {task_on_stop, false},
    [TASK_END] = {task_on_end, false},
    [TASK_BYE] = {task_on_bye, false},
    [TASK_SNAPSHOT] = {task_on_snapshot, false},
    [TASK_PART] = {task_on_part, false},
    [TASK_SETTLE] = {task_on_settle, false},
    [TASK_WRITTEN] = {task_on_written, false},
    [TASK_PROGRESS] = {task_on_progress, false},
};

int task_net_init(struct poise_pool *pool)
{
    struct task_net *net = &pool->net;
    pthread_mutex_init(&net->outbox_lock, NULL);
    net->lost_ns = NET_LOST_NS;
    net->bye = poise_alloc((size_t)pool->size, sizeof *net->bye);
    net->progress.below =
        poise_alloc((size_t)pool->size, sizeof *net->progress.below);
    net->received_from =
        poise_alloc((size_t)pool->size, sizeof *net->received_from);
    int code = net->bye && net->progress.below && net->received_from
                   ? task_steal_init(pool)
                   : -ENOMEM;
    if (code == 0) {
        code = task_stream_init(pool);
    }
    task_token_init(pool);
    return code;
}

void task_net_free(struct poise_pool *pool)
{
    struct task_net *net = &pool->net;
    task_steal_free(pool);
    task_stream_free(pool);
    task_deque_free(&net->outbox);
    task_deque_drop(pool, &net->giving);
    poise_buf_free(&net->packed);
    poise_buf_free(&net->scratch);
    free(net->bye);
    free(net->progress.below);
    free(net->received_from);
    pthread_mutex_destroy(&net->outbox_lock);
}

/* ---- sending ------------------------------------------------------------ */

/* The same number in the records of both ends: message `n` of this pool from
 * one rank to another. */
static uint64_t net_sequence(const struct poise_pool *pool, uint64_t n)
{
    return (uint64_t)pool->net.generation << 32 | (uint32_t)n;
}

void task_net_post(struct poise_pool *pool, int dest, const void *message,
                   size_t len)
{
    struct poise_trace_ring *ring = poise_trace_ring();
    uint64_t began = poise_trace_ticks(ring);
    int code = poise_world_send(pool->world, dest, NET_TAG, message, len);
    if (code < 0) {
        task_stop(pool, code);
        return;
    }
    pool->stats.messages[dest]++;
    pool->stats.bytes[dest] += len;
    poise_trace_put(ring, POISE_TRACE_SEND,
                    net_sequence(pool, pool->stats.messages[dest]), began,
                    (uint64_t)dest, len, 0);
}

void task_send(struct poise_pool *pool, int dest, struct task_head head,
               const void *body, size_t len)
{
    struct task_net *net = &pool->net;
    struct poise_buf message = {0};
    head.generation = net->generation;
    head.snapshot = pool->snapshot.number;
    poise_buf_append(&message, &head, sizeof head);
    if (poise_buf_append(&message, body, len) < 0) {
        task_stop(pool, -ENOMEM);
        return;
    }
    if (net_kinds[head.kind].basic) {
        net->token.count++;
        pool->snapshot.basic_sent++;
        /* EWD840 marks only who gives to a rank that the token has passed. */
        if (net->token.plain && dest < pool->rank) {
            net->token.black = true;
        }
    }
    if (!net->divert || !net->divert(pool, dest, &message, net->divert_arg)) {
        task_net_post(pool, dest, message.data, message.len);
    }
    poise_buf_free(&message);
}

void task_outbox_flush(struct poise_pool *pool)
{
    struct task_net *net = &pool->net;
    if (__atomic_load_n(&net->outbox_count, __ATOMIC_SEQ_CST) == 0) {
        return;
    }
    /* Runs of messages for one rank travel together. */
    pthread_mutex_lock(&net->outbox_lock);
    struct task_record record;
    poise_buf_reset(&net->packed);
    int dest = -1;
    while (task_deque_oldest(&net->outbox, &record)) {
        struct task_message message = task_message_of(&record);
        if (message.rank != dest && net->packed.len > 0) {
            task_send(pool, dest, (struct task_head){.kind = TASK_SEND},
                      net->packed.data, net->packed.len);
            poise_buf_reset(&net->packed);
        }
        dest = message.rank;
        poise_buf_blob(&net->packed, message.data, message.len);
        task_deque_pop_oldest(&net->outbox);
    }
    if (net->packed.error) {
        task_stop(pool, -ENOMEM);
    } else if (net->packed.len > 0) {
        task_send(pool, dest, (struct task_head){.kind = TASK_SEND},
                  net->packed.data, net->packed.len);
    }
    __atomic_store_n(&net->outbox_count, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&net->outbox_lock);
}

/* ---- receiving ---------------------------------------------------------- */

static void net_receive(struct poise_pool *pool,
                        const struct poise_message *message)
{
    struct task_net *net = &pool->net;
    struct task_arrival in = {.source = message->source};
    if (message->tag != NET_TAG || message->len < sizeof in.head) {
        return;
    }
    memcpy(&in.head, message->data, sizeof in.head);
    if (in.head.generation != net->generation ||
        in.head.kind >= TASK_MESSAGES) {
        return;
    }
    in.body = (const char *)message->data + sizeof in.head;
    in.len = message->len - sizeof in.head;
    net->received++;
    poise_trace_event(POISE_TRACE_RECEIVE,
                      net_sequence(pool, ++net->received_from[in.source]),
                      (uint64_t)in.source, message->len, in.head.kind);
    if (in.head.snapshot > pool->snapshot.number) {
        task_snapshot_take(pool, in.head.snapshot);
    }
    if (net_kinds[in.head.kind].basic) {
        net->token.count--;
        net->token.black |= !net->token.plain;
        pool->snapshot.basic_received++;
        if (in.head.snapshot < pool->snapshot.number) {
            task_snapshot_late(pool, &in);
        }
    }
    net_kinds[in.head.kind].handle(pool, &in);
}

static void net_receive_all(struct poise_pool *pool)
{
    struct poise_message message;
    int got;
    while ((got = poise_world_receive(pool->world, &message)) > 0) {
        net_receive(pool, &message);
        poise_message_free(&message);
    }
    if (got < 0) {
        task_stop(pool, got);
    }
}

void task_net_turn(struct poise_pool *pool)
{
    net_receive_all(pool);
    task_outbox_flush(pool);
    task_stream_turn(pool);
    task_end_turn(pool);
    if (task_state(pool) != TASK_RUNNING) {
        return;
    }
    task_checkpoint_turn(pool);
    task_victim_turn(pool);
    task_thief_turn(pool);
    task_token_turn(pool);
}

/* ---- waiting ------------------------------------------------------------ */

static uint64_t net_until(uint64_t now, uint64_t when)
{
    return when <= now ? 0 : when - now;
}

uint64_t task_net_timeout(struct poise_pool *pool, uint64_t most_ns)
{
    struct task_net *net = &pool->net;
    uint64_t now = poise_clock_ns();
    uint64_t least = most_ns;
    if (task_state(pool) == TASK_RUNNING && !net->thief.in_round &&
        __atomic_load_n(&pool->hungry, __ATOMIC_RELAXED) > 0) {
        uint64_t left = net_until(now, net->thief.next_round);
        least = left < least ? left : least;
    }
    if (pool->rank == 0 && !net->token.out && task_passive(pool)) {
        uint64_t left = net_until(now, net->token.next_at);
        least = left < least ? left : least;
    }
    /* Nothing is so urgent that an empty poll would do. */
    return least < 20000 ? 20000 : least;
}

void task_comm_wait(struct poise_pool *pool, uint32_t seen)
{
    if (pool->size == 1) {
        poise_event_wait(&pool->work, seen, NET_LOOK_NS);
        return;
    }
    __atomic_store_n(&pool->comm_asleep, true, __ATOMIC_SEQ_CST);
    if (poise_event_seen(&pool->work) == seen) {
        poise_world_wait(pool->world, task_net_timeout(pool, NET_LOOK_NS));
    }
    __atomic_store_n(&pool->comm_asleep, false, __ATOMIC_SEQ_CST);
}

/* The communicator of a dedicated pool, the master of a central one, and
 * every pool's when no task may run any more. */
void task_comm_loop(struct poise_pool *pool)
{
    struct poise_worker *comm = pool->comm;
    uint64_t began = poise_clock_ticks();
    uint64_t comm_before = comm->comm_ticks;
    if (comm->begin_ticks == 0) {
        __atomic_store_n(&comm->begin_ticks, began, __ATOMIC_RELAXED);
    }
    while (!pool->net.over) {
        task_turn(pool);
        if (pool->master && task_inbox_run(comm)) {
            continue;
        }
        uint32_t seen = poise_event_seen(&pool->work);
        bool wakes = pool->dedicated && pool->net.waiting.count > 0;
        __atomic_fetch_add(&pool->asleep, wakes, __ATOMIC_SEQ_CST);
        if (!pool->net.over && !(wakes && task_can_give(pool))) {
            task_comm_wait(pool, seen);
        }
        __atomic_fetch_sub(&pool->asleep, wakes, __ATOMIC_SEQ_CST);
    }
    uint64_t end = poise_clock_ticks();
    task_count(&comm->idle_ticks,
               end - began - (comm->comm_ticks - comm_before));
    __atomic_store_n(&comm->end_ticks, end, __ATOMIC_RELAXED);
}
