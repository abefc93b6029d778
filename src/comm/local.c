/*
 * The transport of one process: a queue per rank, one thread per rank. A world
 * of one rank uses it, too. Delays, reordering and loss are for tests of what
 * is built above.
 */
#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct rank_queue {
    pthread_mutex_t lock;
    struct comm_heap heap;
    uint64_t arrivals;
    struct poise_event *event; /* of the rank's transport */
};

/* Ranks that called split and wait for the rest of their group. */
struct meeting {
    struct meeting *next;
    struct local_hub *hub;
    uint64_t number;
    int colour, missing;
};

/* Shared by the transports; freed with the last of them. */
struct local_hub {
    int size;
    int users; /* under lock */
    pthread_mutex_t lock;
    struct meeting *meetings; /* under lock */
    struct poise_local_options opts;
    struct rank_queue *queues; /* [size] */
};

struct local_transport {
    struct comm_transport base;
    struct local_hub *hub;
    struct poise_rng rng;
    uint64_t splits;
    uint64_t *last_due_ns; /* [size]: of my last message to each rank */
};

static struct local_transport *of(const struct comm_transport *transport)
{
    return (struct local_transport *)transport;
}

static void hub_free(struct local_hub *hub)
{
    /* Splits that some rank failed to take part in. */
    while (hub->meetings) {
        struct meeting *meeting = hub->meetings;
        hub->meetings = meeting->next;
        meeting->hub->users -= meeting->missing;
        if (meeting->hub->users == 0) {
            hub_free(meeting->hub);
        }
        free(meeting);
    }
    for (int i = 0; i < hub->size; i++) {
        comm_heap_free(&hub->queues[i].heap);
        pthread_mutex_destroy(&hub->queues[i].lock);
    }
    pthread_mutex_destroy(&hub->lock);
    free(hub->queues);
    free(hub);
}

static struct local_hub *hub_create(int size,
                                    const struct poise_local_options *opts)
{
    struct local_hub *hub = poise_alloc(1, sizeof *hub);
    if (!hub) {
        return NULL;
    }
    hub->queues = poise_alloc((size_t)size, sizeof *hub->queues);
    if (!hub->queues) {
        free(hub);
        return NULL;
    }
    hub->size = size;
    if (opts) {
        hub->opts = *opts;
    }
    pthread_mutex_init(&hub->lock, NULL);
    for (int i = 0; i < size; i++) {
        pthread_mutex_init(&hub->queues[i].lock, NULL);
    }
    return hub;
}

static void hub_leave(struct local_hub *hub)
{
    pthread_mutex_lock(&hub->lock);
    int left = --hub->users;
    pthread_mutex_unlock(&hub->lock);
    if (left == 0) {
        hub_free(hub);
    }
}

/* Whether this message gets lost. Collectives have no way to ask again, so
 * theirs never are. */
static bool is_lost(struct local_transport *local, int tag)
{
    double drop = local->hub->opts.drop;
    if (drop <= 0 || tag & COMM_TAG_COLLECTIVE) {
        return false;
    }
    return (double)(poise_rng_next(&local->rng) >> 11) * 0x1p-53 < drop;
}

static uint64_t due_of(struct local_transport *local, int dest)
{
    const struct poise_local_options *opts = &local->hub->opts;
    if (opts->delay_max_ns == 0) {
        return 0;
    }
    uint64_t spread = opts->delay_max_ns > opts->delay_min_ns
                          ? opts->delay_max_ns - opts->delay_min_ns
                          : 0;
    uint64_t due = poise_clock_ns() + opts->delay_min_ns +
                   poise_rng_below(&local->rng, spread + 1);
    if (!opts->reorder && due < local->last_due_ns[dest]) {
        due = local->last_due_ns[dest];
    }
    local->last_due_ns[dest] = due;
    return due;
}

static int local_send(struct comm_transport *transport, int dest, int tag,
                      void *data, size_t len)
{
    struct local_transport *local = of(transport);
    if (is_lost(local, tag)) {
        free(data);
        return 0;
    }
    struct comm_kept item = {
        .due_ns = due_of(local, dest),
        .message = {.source = transport->rank,
                    .tag = tag,
                    .len = len,
                    .data = data},
    };
    struct rank_queue *queue = &local->hub->queues[dest];
    pthread_mutex_lock(&queue->lock);
    item.order = local->hub->opts.reorder ? poise_rng_next(&local->rng)
                                          : queue->arrivals++;
    int code = comm_heap_reserve(&queue->heap);
    if (code == 0) {
        comm_heap_push(&queue->heap, &item);
    }
    /* The event goes when the receiver's transport does. */
    if (queue->event) {
        poise_event_signal(queue->event);
    }
    pthread_mutex_unlock(&queue->lock);
    if (code < 0) {
        free(data);
    }
    return code;
}

static int local_poll(struct comm_transport *transport,
                      struct poise_message *out)
{
    struct rank_queue *queue = &of(transport)->hub->queues[transport->rank];
    int got = 0;
    pthread_mutex_lock(&queue->lock);
    if (queue->heap.count > 0 &&
        comm_time_left(queue->heap.items[0].due_ns) == 0) {
        *out = comm_heap_pop(&queue->heap);
        got = 1;
    }
    pthread_mutex_unlock(&queue->lock);
    return got;
}

static void local_wait(struct comm_transport *transport, uint32_t seen,
                       uint64_t timeout_ns)
{
    struct rank_queue *queue = &of(transport)->hub->queues[transport->rank];
    uint64_t left = UINT64_MAX;
    pthread_mutex_lock(&queue->lock);
    if (queue->heap.count > 0) {
        left = comm_time_left(queue->heap.items[0].due_ns);
    }
    pthread_mutex_unlock(&queue->lock);
    if (left > timeout_ns) {
        left = timeout_ns;
    }
    if (left > 0) {
        poise_event_wait(&transport->event, seen, left);
    }
}

static size_t local_unsent(const struct comm_transport *transport)
{
    (void)transport;
    return 0;
}

static void local_destroy(struct comm_transport *transport)
{
    struct local_transport *local = of(transport);
    struct rank_queue *queue = &local->hub->queues[transport->rank];
    pthread_mutex_lock(&queue->lock);
    queue->event = NULL;
    pthread_mutex_unlock(&queue->lock);
    hub_leave(local->hub);
    free(local->last_due_ns);
    free(local);
}

static int transport_create(struct local_hub *hub, int rank,
                            struct comm_transport **out);

/* The first of a group makes its hub, the last one takes it off the list. */
static struct local_hub *await_all(struct local_hub *hub, uint64_t number,
                                   int colour, int count)
{
    struct meeting **link = &hub->meetings;
    while (*link && ((*link)->number != number || (*link)->colour != colour)) {
        link = &(*link)->next;
    }
    struct meeting *found = *link;
    if (!found) {
        found = poise_alloc(1, sizeof *found);
        if (!found) {
            return NULL;
        }
        found->hub = hub_create(count, &hub->opts);
        if (!found->hub) {
            free(found);
            return NULL;
        }
        /* All of them hold it from now on, so that a rank that leaves early
         * does not take it away from one that comes late. */
        found->hub->users = count;
        found->number = number;
        found->colour = colour;
        found->missing = count;
        *link = found;
    }
    struct local_hub *sub = found->hub;
    if (--found->missing == 0) {
        *link = found->next;
        free(found);
    }
    return sub;
}

static int local_split(struct comm_transport *transport, int colour, int rank,
                       int count, struct comm_transport **out)
{
    struct local_transport *local = of(transport);
    struct local_hub *hub = local->hub;
    uint64_t number = local->splits++;
    pthread_mutex_lock(&hub->lock);
    struct local_hub *sub = await_all(hub, number, colour, count);
    pthread_mutex_unlock(&hub->lock);
    if (!sub) {
        return -ENOMEM;
    }
    int code = transport_create(sub, rank, out);
    if (code < 0) {
        hub_leave(sub);
    }
    return code;
}

static const struct comm_transport_ops local_ops = {
    .send = local_send,
    .poll = local_poll,
    .wait = local_wait,
    .unsent = local_unsent,
    .split = local_split,
    .destroy = local_destroy,
};

static int transport_create(struct local_hub *hub, int rank,
                            struct comm_transport **out)
{
    struct local_transport *local = poise_alloc(1, sizeof *local);
    if (!local) {
        return -ENOMEM;
    }
    local->last_due_ns = poise_alloc((size_t)hub->size, sizeof(uint64_t));
    if (!local->last_due_ns) {
        free(local);
        return -ENOMEM;
    }
    local->base.ops = &local_ops;
    local->base.rank = rank;
    local->base.size = hub->size;
    local->base.threads_allowed = true;
    snprintf(local->base.name, sizeof local->base.name, "one process");
    local->hub = hub;
    poise_rng_seed(&local->rng, hub->opts.seed + (uint64_t)rank);
    struct rank_queue *queue = &hub->queues[rank];
    pthread_mutex_lock(&queue->lock);
    queue->event = &local->base.event;
    pthread_mutex_unlock(&queue->lock);
    *out = &local->base;
    return 0;
}

int comm_local_create(int size, const struct poise_local_options *opts,
                      struct comm_transport **out)
{
    struct local_hub *hub = hub_create(size, opts);
    if (!hub) {
        return -ENOMEM;
    }
    hub->users = size;
    int made = 0;
    for (; made < size; made++) {
        if (transport_create(hub, made, &out[made]) < 0) {
            break;
        }
    }
    if (made == size) {
        return 0;
    }
    for (int i = made; i < size; i++) {
        hub_leave(hub);
    }
    for (int i = 0; i < made; i++) {
        out[i]->ops->destroy(out[i]);
    }
    return -ENOMEM;
}
