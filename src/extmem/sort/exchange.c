/*
 * Blocks that processes send each other during a pass. Lanes queue them for
 * their destination; the thread of the world sends them, a window at a time to
 * each process, and takes in what others send. It waits for its own disks at
 * most, never for a lane or another process, so there is no circle of waiting.
 *
 * A packet belongs to its lane while it is filled, to the queue of its
 * destination from sort_exchange_put on, and to the lane again when it was sent
 * (the message is a copy). A lane that has none left waits for its `returned`
 * event; it reads the event before the list, so that no return is missed.
 * `left` counts the lanes that put nothing more in: each adds itself after its
 * last packet is queued (release), and the sender reads it before it looks into
 * the queues (acquire); so a queue that it then finds empty stays empty, and
 * END is the last message.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** What waits to go to another process. */
struct queue {
    struct sort_packet *first, **last; /* under the lock */
};

/** Packets of a lane that came back. */
struct returned {
    struct sort_packet *packets; /* under the lock */
    struct poise_event event;
};

struct sort_exchange {
    struct sort_run *run;
    sort_take_fn take;
    void *arg;
    pthread_mutex_t lock;
    struct queue *queues;      /* owned, one for each process */
    struct returned *returned; /* owned, one for each lane */
    unsigned left;             /* __atomic: lanes */
    struct extmem_peers peers;
};

int sort_exchange_open(struct sort_run *run, sort_take_fn take, void *arg,
                       struct sort_exchange **out)
{
    struct sort_exchange *exchange = poise_alloc(1, sizeof *exchange);

    if (!exchange) {
        return -ENOMEM;
    }
    *exchange = (struct sort_exchange){.run = run, .take = take, .arg = arg};
    pthread_mutex_init(&exchange->lock, NULL);
    exchange->queues = poise_alloc(run->processes, sizeof *exchange->queues);
    exchange->returned =
        poise_alloc(run->plan.lanes, sizeof *exchange->returned);
    if (!exchange->queues || !exchange->returned ||
        extmem_peers_open(&exchange->peers, run->world, &run->stop) < 0) {
        sort_exchange_close(exchange);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < run->processes; i++) {
        exchange->queues[i].last = &exchange->queues[i].first;
    }
    *out = exchange;
    return 0;
}

void sort_exchange_close(struct sort_exchange *exchange)
{
    if (!exchange) {
        return;
    }
    extmem_peers_close(&exchange->peers);
    pthread_mutex_destroy(&exchange->lock);
    free(exchange->queues);
    free(exchange->returned);
    free(exchange);
}

/* ---- lanes -------------------------------------------------------------- */

void sort_exchange_put(struct sort_exchange *exchange, unsigned dest,
                       struct sort_packet *packet)
{
    struct queue *queue = &exchange->queues[dest];

    packet->next = NULL;
    pthread_mutex_lock(&exchange->lock);
    *queue->last = packet;
    queue->last = &packet->next;
    pthread_mutex_unlock(&exchange->lock);
    poise_world_wake(exchange->run->world);
}

struct sort_packet *sort_exchange_back(struct sort_exchange *exchange,
                                       unsigned lane)
{
    enum { LOOK_AGAIN_NS = 20 * 1000 * 1000 };
    struct returned *returned = &exchange->returned[lane];

    for (;;) {
        uint32_t seen = poise_event_seen(&returned->event);
        struct sort_packet *packets;

        pthread_mutex_lock(&exchange->lock);
        packets = returned->packets;
        returned->packets = NULL;
        pthread_mutex_unlock(&exchange->lock);
        if (packets || extmem_stopped(&exchange->run->stop)) {
            return packets;
        }
        poise_event_wait(&returned->event, seen, LOOK_AGAIN_NS);
    }
}

void sort_exchange_leave(struct sort_exchange *exchange)
{
    __atomic_fetch_add(&exchange->left, 1, __ATOMIC_RELEASE);
    poise_world_wake(exchange->run->world);
}

/* ---- the world's thread ------------------------------------------------- */

static struct sort_packet *queue_next(struct sort_exchange *exchange,
                                      struct queue *queue)
{
    struct sort_packet *packet;

    pthread_mutex_lock(&exchange->lock);
    packet = queue->first;
    if (packet) {
        queue->first = packet->next;
        if (!queue->first) {
            queue->last = &queue->first;
        }
    }
    pthread_mutex_unlock(&exchange->lock);
    return packet;
}

static void give_back(struct sort_exchange *exchange,
                      struct sort_packet *packet)
{
    struct returned *returned =
        &exchange->returned[packet->lane % exchange->run->plan.lanes];

    pthread_mutex_lock(&exchange->lock);
    packet->next = returned->packets;
    returned->packets = packet;
    pthread_mutex_unlock(&exchange->lock);
    poise_event_signal(&returned->event);
}

/* Send what waits for `dest` and has room; whether something was sent. */
static bool send_some(struct sort_exchange *exchange, unsigned dest)
{
    struct sort_run *run = exchange->run;
    struct extmem_peer *peer = &exchange->peers.all[dest];
    /* Before the queue is looked at: then nothing is put in behind it. */
    bool all_left =
        __atomic_load_n(&exchange->left, __ATOMIC_ACQUIRE) == run->plan.lanes;
    struct sort_packet *packet = NULL;
    bool sent = false;

    while (peer->under_way < run->plan.window &&
           (packet = queue_next(exchange, &exchange->queues[dest]))) {
        int code;

        packet->next = NULL;
        packet->lane += run->rank * run->plan.lanes;
        code = poise_world_send(run->world, (int)dest, SORT_TAG_BLOCK, packet,
                                SORT_PACKET_HEAD + packet->len);
        give_back(exchange, packet);
        if (code < 0) {
            extmem_peers_fail(&exchange->peers, code);
            return true;
        }
        peer->under_way++;
        sent = true;
    }
    if (all_left && peer->under_way < run->plan.window && !peer->ended) {
        extmem_peers_end(&exchange->peers, dest, EXTMEM_TAG_END);
        sent = true;
    }
    return sent;
}

static void take_block(struct sort_exchange *exchange,
                       const struct poise_message *message)
{
    struct sort_packet *packet = message->data;
    int code = 0;

    if (message->len < SORT_PACKET_HEAD ||
        message->len - SORT_PACKET_HEAD != packet->len) {
        code = poise_error_set(EBADMSG, "sort", NULL,
                               "a message from rank %d is not one of a sort",
                               message->source);
    } else if (!extmem_stopped(&exchange->run->stop)) {
        code = exchange->take(exchange->arg, packet);
    }
    if (code < 0) {
        extmem_peers_fail(&exchange->peers, code);
    }
    extmem_peers_send(&exchange->peers, (unsigned)message->source,
                      EXTMEM_TAG_TAKEN, NULL, 0);
}

/* Whether something was sent or came. */
static bool step(struct sort_exchange *exchange)
{
    struct sort_run *run = exchange->run;
    struct poise_message message;
    bool busy = false;

    if (extmem_stopped(&run->stop)) {
        busy = extmem_peers_end_all(&exchange->peers, EXTMEM_TAG_STOP);
    } else {
        for (unsigned i = 1; i < run->processes; i++) {
            busy |= send_some(exchange, (run->rank + i) % run->processes);
        }
    }
    while (extmem_peers_receive(&exchange->peers, &message)) {
        if (message.tag == SORT_TAG_BLOCK) {
            take_block(exchange, &message);
        } else if (message.tag == EXTMEM_TAG_TAKEN) {
            exchange->peers.all[message.source].under_way--;
        }
        poise_message_free(&message);
        busy = true;
    }
    return busy;
}

int sort_exchange_run(struct sort_exchange *exchange)
{
    while (!extmem_peers_over(&exchange->peers)) {
        if (!step(exchange)) {
            extmem_peers_wait(&exchange->peers);
        }
    }
    return exchange->peers.code;
}
