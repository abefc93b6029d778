/*
 * Who waits for a line, and who is dropped. A queue of one flow, first in,
 * first out, with or without CoDel; or fq_codel, a queue for each of many
 * flows: those that send little go first, the others in turn.
 *
 * CoDel looks at how long packets waited: if that was never below the target
 * for an interval, it drops one, and then one more after ever shorter times.
 * Senders that understand marks are sent those instead of losses.
 *
 * Source: RFC 8289 (CoDel), RFC 8290 (FQ-CoDel), with their constants.
 */
#include "wan/link/link.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define TARGET_NS UINT64_C(5000000)
#define INTERVAL_NS UINT64_C(100000000)
#define QUANTUM 1514
#define MTU 1514
/** Packets of a queue that has no limit in bytes: fq_codel's. */
#define PACKETS_MOST 10240

int wan_queue_create(enum poise_wan_qdisc qdisc, struct wan_queue **out)
{
    struct wan_queue *queue = poise_alloc(1, sizeof *queue);
    unsigned flows = qdisc == POISE_WAN_FQ_CODEL ? WAN_FLOWS : 1;
    if (queue) {
        queue->qdisc = qdisc;
        queue->flows = poise_alloc(flows, sizeof *queue->flows);
    }
    if (!queue || !queue->flows) {
        free(queue);
        return -ENOMEM;
    }
    *out = queue;
    return 0;
}

static void append(struct wan_packet **list, struct wan_packet *packet)
{
    packet->next = *list;
    *list = packet;
}

/* ---- one flow ----------------------------------------------------------- */

static struct wan_packet *flow_take(struct wan_queue *queue,
                                    struct wan_flow *flow)
{
    struct wan_packet *packet = flow->first;
    if (packet) {
        flow->first = packet->next;
        flow->last = flow->first ? flow->last : NULL;
        flow->bytes -= packet->bytes;
        queue->bytes -= packet->bytes;
        queue->packets--;
        packet->next = NULL;
    }
    return packet;
}

static void flow_put(struct wan_queue *queue, struct wan_flow *flow,
                     struct wan_packet *packet)
{
    packet->next = NULL;
    if (flow->first) {
        flow->last->next = packet;
    } else {
        flow->first = packet;
    }
    flow->last = packet;
    flow->bytes += packet->bytes;
    queue->bytes += packet->bytes;
    queue->packets++;
}

void wan_queue_free(struct wan_queue *queue, struct wan_packet **left)
{
    if (!queue) {
        return;
    }
    unsigned flows = queue->qdisc == POISE_WAN_FQ_CODEL ? WAN_FLOWS : 1;
    for (unsigned i = 0; i < flows; i++) {
        struct wan_packet *packet;
        while ((packet = flow_take(queue, &queue->flows[i]))) {
            append(left, packet);
        }
    }
    free(queue->flows);
    free(queue);
}

/* ---- CoDel -------------------------------------------------------------- */

static uint64_t control_law(uint64_t at_ns, unsigned count)
{
    return at_ns + (uint64_t)((double)INTERVAL_NS / sqrt((double)count));
}

/* The next packet, and whether it may be dropped: packets have waited for
 * longer than the target for an interval. */
static struct wan_packet *codel_look(struct wan_queue *queue,
                                     struct wan_flow *flow, uint64_t now_ns,
                                     bool *drop)
{
    struct wan_codel *c = &flow->codel;
    struct wan_packet *packet = flow_take(queue, flow);
    *drop = false;
    if (!packet) {
        c->above_ns = 0;
        return NULL;
    }
    if (now_ns - packet->queued_ns < TARGET_NS || flow->bytes <= MTU) {
        c->above_ns = 0;
    } else if (c->above_ns == 0) {
        c->above_ns = now_ns + INTERVAL_NS;
    } else {
        *drop = now_ns >= c->above_ns;
    }
    return packet;
}

/* Mark it if its sender understands that, and keep it; else drop it and give
 * the next one. */
static struct wan_packet *codel_strike(struct wan_queue *queue,
                                       struct wan_flow *flow, uint64_t now_ns,
                                       struct wan_packet *packet, bool *drop,
                                       struct wan_packet **dropped)
{
    if (packet->segment->ecn) {
        packet->marked = true;
        *drop = false;
        return packet;
    }
    append(dropped, packet);
    return codel_look(queue, flow, now_ns, drop);
}

static struct wan_packet *codel_take(struct wan_queue *queue,
                                     struct wan_flow *flow, uint64_t now_ns,
                                     struct wan_packet **dropped)
{
    struct wan_codel *c = &flow->codel;
    bool drop, marked = false;
    struct wan_packet *packet = codel_look(queue, flow, now_ns, &drop);
    if (c->dropping) {
        c->dropping = drop;
        while (packet && c->dropping && now_ns >= c->next_ns && !marked) {
            c->count++;
            marked = packet->segment->ecn;
            packet = codel_strike(queue, flow, now_ns, packet, &drop, dropped);
            c->dropping = marked || drop;
            c->next_ns = control_law(c->next_ns, c->count);
        }
    } else if (packet && drop) {
        unsigned more = c->count - c->last_count;
        packet = codel_strike(queue, flow, now_ns, packet, &drop, dropped);
        c->dropping = true;
        c->count =
            more > 1 && now_ns - c->next_ns < 16 * INTERVAL_NS ? more : 1;
        c->next_ns = control_law(now_ns, c->count);
        c->last_count = c->count;
    }
    return packet;
}

/* ---- many flows --------------------------------------------------------- */

static void list_put(struct wan_flow **first, struct wan_flow **last,
                     struct wan_flow *flow)
{
    flow->next = NULL;
    if (*first) {
        (*last)->next = flow;
    } else {
        *first = flow;
    }
    *last = flow;
}

static void drop_fattest(struct wan_queue *queue, struct wan_packet **dropped)
{
    unsigned flows = queue->qdisc == POISE_WAN_FQ_CODEL ? WAN_FLOWS : 1;
    struct wan_flow *fattest = queue->flows;
    for (unsigned i = 1; i < flows; i++) {
        if (queue->flows[i].bytes > fattest->bytes) {
            fattest = &queue->flows[i];
        }
    }
    struct wan_packet *packet = flow_take(queue, fattest);
    if (packet) {
        append(dropped, packet);
    }
}

void wan_queue_put(struct wan_queue *queue, uint64_t now_ns,
                   struct wan_packet *packet, struct wan_packet **dropped)
{
    bool fair = queue->qdisc == POISE_WAN_FQ_CODEL;
    struct wan_flow *flow =
        &queue->flows[fair ? packet->segment->flow % WAN_FLOWS : 0];
    bool full = queue->packets >= PACKETS_MOST ||
                (queue->most_bytes > 0 && queue->packets > 0 &&
                 queue->bytes + packet->bytes > queue->most_bytes);
    if (full && !fair) {
        append(dropped, packet);
        return;
    }
    packet->queued_ns = now_ns;
    flow_put(queue, flow, packet);
    if (full) {
        drop_fattest(queue, dropped);
    }
    if (fair && !flow->listed) {
        flow->listed = true;
        flow->deficit = QUANTUM;
        list_put(&queue->fresh, &queue->fresh_last, flow);
    }
}

static struct wan_packet *fair_take(struct wan_queue *queue, uint64_t now_ns,
                                    struct wan_packet **dropped)
{
    for (;;) {
        bool fresh = queue->fresh != NULL;
        struct wan_flow **first = fresh ? &queue->fresh : &queue->old;
        struct wan_flow *flow = *first;
        if (!flow) {
            return NULL;
        }
        if (flow->deficit <= 0) {
            flow->deficit += QUANTUM;
            *first = flow->next;
            list_put(&queue->old, &queue->old_last, flow);
            continue;
        }
        struct wan_packet *packet = codel_take(queue, flow, now_ns, dropped);
        if (packet) {
            flow->deficit -= packet->bytes;
            return packet;
        }
        *first = flow->next;
        if (fresh && queue->old) {
            list_put(&queue->old, &queue->old_last, flow);
        } else {
            flow->listed = false;
        }
    }
}

struct wan_packet *wan_queue_take(struct wan_queue *queue, uint64_t now_ns,
                                  struct wan_packet **dropped)
{
    switch (queue->qdisc) {
    case POISE_WAN_FQ_CODEL:
        return fair_take(queue, now_ns, dropped);
    case POISE_WAN_CODEL:
        return codel_take(queue, queue->flows, now_ns, dropped);
    default:
        return flow_take(queue, queue->flows);
    }
}
