/*
 * How a run over several ranks ends. A rank that has to stop notifies rank 0
 * (STOP); rank 0 notifies all, down a binomial tree (END), and each answers its
 * parent (BYE). Then all of them agree on the result (that of the lowest rank
 * which stopped) and take what is still under way out of the world, so that the
 * next user of the world finds nothing.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** In a world that loses messages they are repeated so often, each after
 * this part of the time after which the pool counts messages as lost. */
#define END_REPEATS 20
#define END_REPEAT_PART 200
#define END_DRAIN_PART 10

/* Children of a rank in the binomial tree: rank + 2^k for all 2^k above it. */
static void end_notify_children(struct poise_pool *pool, bool again)
{
    struct task_net *net = &pool->net;
    struct task_head head = {.kind = TASK_END,
                             .flags = net->halted ? TASK_FLAG_HALTED : 0};
    for (int step = 1; step < pool->size; step *= 2) {
        int child = pool->rank + step;
        if (step > pool->rank && child < pool->size &&
            (!again || !net->bye[child])) {
            task_send(pool, child, head, NULL, 0);
            net->byes += !again;
        }
    }
    net->end_sent = poise_clock_ns();
}

int task_parent(int rank)
{
    int step = 1;
    while (step * 2 <= rank) {
        step *= 2;
    }
    return rank - step;
}

static void end_begin(struct poise_pool *pool, bool halted)
{
    struct task_net *net = &pool->net;
    if (net->over) {
        return;
    }
    net->over = true;
    net->halted = halted;
    end_notify_children(pool, false);
    task_set_state(pool, halted ? TASK_HALTED : TASK_ENDED);
    poise_event_signal(&net->stream.drained);
}

void task_end_all(struct poise_pool *pool, bool halted)
{
    end_begin(pool, halted);
}

void task_on_end(struct poise_pool *pool, const struct task_arrival *in)
{
    end_begin(pool, in->head.flags & TASK_FLAG_HALTED);
    task_send(pool, task_parent(pool->rank),
              (struct task_head){.kind = TASK_BYE}, NULL, 0);
}

void task_on_bye(struct poise_pool *pool, const struct task_arrival *in)
{
    struct task_net *net = &pool->net;
    if (!net->bye[in->source]) {
        net->bye[in->source] = true;
        net->byes--;
    }
}

void task_on_stop(struct poise_pool *pool, const struct task_arrival *in)
{
    task_halt(pool, in->head.a != 0);
}

/* This rank stopped: rank 0 must know, and hears it again until it acts. */
void task_end_turn(struct poise_pool *pool)
{
    struct task_net *net = &pool->net;
    if (net->over) {
        return;
    }
    bool interrupted = task_interrupted(pool);
    if (!interrupted && task_state(pool) != TASK_HALTED) {
        return;
    }
    if (pool->rank == 0) {
        task_halt(pool, task_state(pool) != TASK_HALTED);
        return;
    }
    uint64_t now = poise_clock_ns();
    if (net->stop_sent == 0 ||
        now - net->stop_sent > net->lost_ns / END_REPEAT_PART * 4) {
        net->stop_sent = now;
        task_send(pool, 0,
                  (struct task_head){.kind = TASK_STOP,
                                     .a = task_state(pool) != TASK_HALTED},
                  NULL, 0);
    }
}

/* ---- after the run ------------------------------------------------------ */

static void end_wait_for_byes(struct poise_pool *pool)
{
    struct task_net *net = &pool->net;
    uint64_t pause_ns = net->lost_ns / END_REPEAT_PART;
    for (int again = 0; net->byes > 0 && again < END_REPEATS;) {
        poise_world_wait(pool->world, pause_ns);
        task_net_turn(pool);
        if (net->byes > 0 && poise_clock_ns() - net->end_sent > pause_ns) {
            end_notify_children(pool, true);
            again++;
        }
    }
}

/* Receive, and forget, whatever was still sent to this rank. */
static int end_drain(struct poise_pool *pool)
{
    uint64_t *sent = poise_alloc((size_t)pool->size, sizeof *sent);
    int code = poise_world_agree(pool->world, sent ? 0 : -ENOMEM);
    if (code == 0) {
        memcpy(sent, pool->stats.messages, (size_t)pool->size * sizeof *sent);
        code = poise_world_reduce(pool->world, POISE_SUM, sent,
                                  (size_t)pool->size);
    }
    uint64_t until = poise_clock_ns() + pool->net.lost_ns / END_DRAIN_PART;
    while (code == 0 && pool->net.received < sent[pool->rank]) {
        struct poise_message message;
        int got = poise_world_receive(pool->world, &message);
        if (got < 0) {
            code = got;
        } else if (got > 0) {
            pool->net.received++;
            poise_message_free(&message);
        } else if (poise_clock_ns() > until) {
            break; /* lost */
        } else {
            poise_world_wait(pool->world, pool->net.lost_ns / END_REPEAT_PART);
        }
    }
    free(sent);
    return code;
}

/* The end of the lowest rank that has one becomes everybody's. */
static int end_share(struct poise_pool *pool)
{
    struct task_end *end = &pool->end;
    uint64_t first = end->set ? (uint64_t)pool->rank : UINT64_MAX;
    int code = poise_world_reduce(pool->world, POISE_MIN, &first, 1);
    if (code < 0 || first == UINT64_MAX) {
        return code;
    }
    struct poise_buf text = {0};
    if (first == (uint64_t)pool->rank) {
        const char *parts[] = {end->doing, end->what, end->why};
        poise_buf_u64(&text, (uint64_t)(int64_t)end->code);
        for (int i = 0; i < 3; i++) {
            poise_buf_blob(&text, parts[i] ? parts[i] : "",
                           parts[i] ? strlen(parts[i]) + 1 : 0);
        }
    }
    code = poise_world_broadcast(pool->world, (int)first, &text);
    if (code == 0) {
        struct poise_reader reader = poise_reader_of(text.data, text.len);
        const char *parts[3] = {0};
        int shared = (int)(int64_t)poise_reader_u64(&reader);
        for (int i = 0; i < 3; i++) {
            size_t len;
            parts[i] = poise_reader_blob(&reader, &len);
            parts[i] = len > 0 ? parts[i] : NULL;
        }
        code = shared;
        if (shared < 0) {
            code = poise_error_set(-shared, parts[0] ? parts[0] : "run tasks",
                                   parts[1], parts[2] ? "%s" : NULL, parts[2]);
        }
    }
    poise_buf_free(&text);
    return code;
}

int task_end_agree(struct poise_pool *pool)
{
    end_wait_for_byes(pool);
    int drained = end_drain(pool);
    int code = end_share(pool);
    return code ? code : drained;
}
