/*
 * Messages of a world. Below is a transport that knows ranks, tags and bytes;
 * here are messages to oneself, the emulated latency of a synthetic topology,
 * and the sorting of what arrives: messages of collectives to the inbox, the
 * rest to those that wait to be received.
 *
 * A flagged tag means that the data ends in a trailer: when it was sent
 * (COMM_TAG_TIMED, 8 bytes, last), and before that the stamp of a collective
 * (COMM_TAG_COLLECTIVE). Trailers rather than headers: the receiver cuts them
 * off without moving the data. Both ends run the same program on machines of
 * one kind, so they are in the machine's own byte order.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the heap ----------------------------------------------------------- */

int comm_heap_reserve(struct comm_heap *heap)
{
    if (heap->count < heap->cap) {
        return 0;
    }
    size_t cap = heap->cap ? heap->cap * 2 : 16;
    void *items = poise_realloc(heap->items, cap, sizeof *heap->items);
    if (!items) {
        return -ENOMEM;
    }
    heap->items = items;
    heap->cap = cap;
    return 0;
}

static bool is_before(const struct comm_kept *a, const struct comm_kept *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

void comm_heap_push(struct comm_heap *heap, const struct comm_kept *item)
{
    size_t at = heap->count++;
    while (at > 0 && is_before(item, &heap->items[(at - 1) / 2])) {
        heap->items[at] = heap->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->items[at] = *item;
}

struct poise_message comm_heap_pop(struct comm_heap *heap)
{
    struct poise_message first = heap->items[0].message;
    struct comm_kept last = heap->items[--heap->count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count &&
            is_before(&heap->items[child + 1], &heap->items[child])) {
            child++;
        }
        if (!is_before(&heap->items[child], &last)) {
            break;
        }
        heap->items[at] = heap->items[child];
    }
    heap->items[at] = last;
    return first;
}

void comm_heap_free(struct comm_heap *heap)
{
    for (size_t i = 0; i < heap->count; i++) {
        free(heap->items[i].message.data);
    }
    free(heap->items);
    *heap = (struct comm_heap){0};
}

uint64_t comm_time_left(uint64_t due_ns)
{
    if (due_ns == 0) {
        return 0;
    }
    uint64_t now = poise_clock_ns();
    return due_ns > now ? due_ns - now : 0;
}

/* ---- sending ------------------------------------------------------------ */

static int keep_own(struct poise_world *world, int tag, void *data, size_t len)
{
    struct comm_kept item = {
        .order = world->order++,
        .message = {
            .source = world->rank, .tag = tag, .len = len, .data = data}};
    int code = comm_heap_reserve(&world->kept);
    if (code < 0) {
        free(data);
        return code;
    }
    comm_heap_push(&world->kept, &item);
    return 0;
}

int comm_post(struct poise_world *world, int dest, int tag, const void *data,
              size_t len, const void *trailer, size_t trailer_len)
{
    bool timed = world->placements.timed && dest != world->rank;
    size_t total = len + trailer_len + (timed ? sizeof(uint64_t) : 0);
    char *copy = NULL;
    if (total > 0) {
        copy = poise_realloc(NULL, total, 1);
        if (!copy) {
            return -ENOMEM;
        }
        if (len > 0) {
            memcpy(copy, data, len);
        }
        if (trailer_len > 0) {
            memcpy(copy + len, trailer, trailer_len);
        }
    }
    if (dest == world->rank) {
        return keep_own(world, tag, copy, total);
    }
    if (timed) {
        uint64_t now = poise_clock_ns();
        memcpy(copy + len + trailer_len, &now, sizeof now);
        tag |= COMM_TAG_TIMED;
    }
    return world->transport->ops->send(world->transport, dest, tag, copy,
                                       total);
}

int poise_world_send(struct poise_world *world, int dest, int tag,
                     const void *data, size_t len)
{
    const char *doing = "send a message";
    if (dest < 0 || dest >= world->size) {
        return poise_error_set(EINVAL, doing, NULL, "there is no rank %d",
                               dest);
    }
    if (tag < 0 || tag > POISE_TAG_MAX) {
        return poise_error_set(EINVAL, doing, NULL, "there is no tag %d", tag);
    }
    int code = poise_fault_check(POISE_FAULT_SEND);
    if (code) {
        return poise_error_set(code, doing, NULL, NULL);
    }
    return comm_post(world, dest, tag, data, len, NULL, 0);
}

size_t poise_world_unsent(const struct poise_world *world)
{
    return world->transport->ops->unsent(world->transport);
}

/* ---- receiving ---------------------------------------------------------- */

static int reserve_inbox(struct poise_world *world)
{
    if (world->inbox_count < world->inbox_cap) {
        return 0;
    }
    size_t cap = world->inbox_cap ? world->inbox_cap * 2 : 8;
    void *inbox = poise_realloc(world->inbox, cap, sizeof *world->inbox);
    if (!inbox) {
        return -ENOMEM;
    }
    world->inbox = inbox;
    world->inbox_cap = cap;
    return 0;
}

/* Cut `len` bytes off the end of a message. */
static int cut(struct poise_message *message, void *trailer, size_t len)
{
    if (message->len < len) {
        return poise_error_set(EBADMSG, "receive a message", NULL,
                               "%zu bytes with tag %d from rank %d are not "
                               "what a Poise world sends",
                               message->len, message->tag, message->source);
    }
    message->len -= len;
    memcpy(trailer, (char *)message->data + message->len, len);
    return 0;
}

/* Emulated latency. None while this rank is still finding out about placements:
 * its peers may be ahead of it. */
static uint64_t cost_from(const struct poise_world *world, int source)
{
    const struct comm_layout *layout = &world->placements.layout;
    if (!layout->placements) {
        return 0;
    }
    return layout->cost_ns[comm_placements_distance(layout->placements,
                                                    world->rank, source)];
}

static int sort_in(struct poise_world *world, struct poise_message message)
{
    uint64_t due = 0;
    struct comm_stamp stamp;
    int tag = message.tag;
    message.tag &= POISE_TAG_MAX;
    if (tag & COMM_TAG_TIMED) {
        int code = cut(&message, &due, sizeof due);
        if (code < 0) {
            return code;
        }
        due += cost_from(world, message.source);
    }
    if (!(tag & COMM_TAG_COLLECTIVE)) {
        struct comm_kept item = {
            .due_ns = due, .order = world->order++, .message = message};
        comm_heap_push(&world->kept, &item);
        return 0;
    }
    int code = cut(&message, &stamp, sizeof stamp);
    if (code < 0) {
        return code;
    }
    world->inbox[world->inbox_count++] =
        (struct comm_letter){.due_ns = due,
                             .sequence = stamp.sequence,
                             .op = stamp.op,
                             .code = stamp.code,
                             .message = message};
    return 0;
}

int comm_take_in(struct poise_world *world)
{
    if (comm_heap_reserve(&world->kept) < 0 || reserve_inbox(world) < 0) {
        return -ENOMEM;
    }
    struct poise_message message;
    int got = world->transport->ops->poll(world->transport, &message);
    if (got <= 0) {
        return got;
    }
    int code = sort_in(world, message);
    if (code < 0) {
        free(message.data);
        return code;
    }
    return 1;
}

int poise_world_receive(struct poise_world *world, struct poise_message *out)
{
    int code = comm_take_in(world);
    if (code < 0) {
        return code;
    }
    if (world->kept.count == 0 ||
        comm_time_left(world->kept.items[0].due_ns) > 0) {
        return 0;
    }
    *out = comm_heap_pop(&world->kept);
    return 1;
}

void poise_message_free(struct poise_message *message)
{
    free(message->data);
    *message = (struct poise_message){0};
}

/* ---- waiting ------------------------------------------------------------ */

void poise_world_wait(struct poise_world *world, uint64_t timeout_ns)
{
    struct comm_transport *transport = world->transport;
    uint32_t seen = poise_event_seen(&transport->event);
    if (__atomic_exchange_n(&world->woken, 0, __ATOMIC_ACQ_REL)) {
        return;
    }
    if (world->kept.count > 0) {
        uint64_t left = comm_time_left(world->kept.items[0].due_ns);
        if (left < timeout_ns) {
            timeout_ns = left;
        }
    }
    if (timeout_ns > 0) {
        transport->ops->wait(transport, seen, timeout_ns);
        /* An exchange, not a store: the thread that woke us wrote something
         * first. */
        __atomic_exchange_n(&world->woken, 0, __ATOMIC_ACQ_REL);
    }
}

void poise_world_wake(struct poise_world *world)
{
    __atomic_store_n(&world->woken, 1, __ATOMIC_RELEASE);
    poise_event_signal(&world->transport->event);
}
