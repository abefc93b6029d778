/*
 * Messages between groups: a head that says to which call it belongs, and
 * bytes. Letters that come before their call wait in the inbox. A message of
 * the present call whose check differs comes from a rank that is in another
 * call; a rank that finds one ends with that rank's name, rather than wait for
 * ever.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_TAG 1
#define MOST_TRIES 100
/* Longer ones may wait for their receiver. */
#define FLUSH_BYTES 1024
#define LOOK_NS UINT64_C(50000000)

static void count_sent(struct poise_coll *coll, int dest, size_t bytes)
{
    enum poise_level level =
        poise_world_distance(coll->world, coll->rank, dest);
    coll->stats.sent_bytes[level] += bytes;
    coll->stats.sent_messages[level]++;
    coll->sent[dest] += bytes;
}

int coll_message_send(struct poise_coll *coll, const struct coll_call *call,
                      int dest, const char *data,
                      const struct coll_range *ranges, int count)
{
    struct coll_head head = {.number = call->number,
                             .check = call->check,
                             .code = call->code,
                             .culprit = call->culprit,
                             .flags = call->flags};
    struct poise_buf *message = &coll->message;
    int code, tries = 0;
    do {
        poise_buf_reset(message);
        poise_buf_append(message, &head, sizeof head);
        for (int i = 0; i < count && call->code == 0; i++) {
            if (ranges[i].len > 0) {
                poise_buf_append(message, data + ranges[i].from, ranges[i].len);
            }
        }
        code = message->error;
        if (code == 0) {
            code = poise_world_send(coll->world, dest, MESSAGE_TAG,
                                    message->data, message->len);
        }
        /* Others wait for it: a shortage of memory is waited out. */
        if (code == -ENOMEM && tries < MOST_TRIES) {
            poise_sleep_ns(1000000);
        }
    } while (code == -ENOMEM && tries++ < MOST_TRIES);
    if (code == 0) {
        count_sent(coll, dest, message->len);
    }
    return code;
}

/* Room for one message more. */
static int reserve(struct poise_coll *coll)
{
    if (coll->inbox_count == coll->inbox_cap) {
        size_t cap = coll->inbox_cap ? coll->inbox_cap * 2 : 8;
        void *inbox = poise_realloc(coll->inbox, cap, sizeof *coll->inbox);
        if (!inbox) {
            return -ENOMEM;
        }
        coll->inbox = inbox;
        coll->inbox_cap = cap;
    }
    return 0;
}

static int keep(struct poise_coll *coll, const struct poise_message *raw)
{
    struct coll_message *message = &coll->inbox[coll->inbox_count];
    if (raw->len < sizeof message->head) {
        return poise_error_set(EPROTO, "read a message", NULL,
                               "rank %d sent %zu bytes", raw->source, raw->len);
    }
    memcpy(&message->head, raw->data, sizeof message->head);
    message->source = raw->source;
    message->data = raw->data;
    message->body = (const char *)raw->data + sizeof message->head;
    message->len = raw->len - sizeof message->head;
    coll->inbox_count++;
    return 0;
}

/* 1: one message more, 0: none there, negative. What there is no room for stays
 * where it is: a caller that only drains cannot report that one was lost. */
static int receive_one(struct poise_coll *coll)
{
    struct poise_message raw;
    int code = reserve(coll);
    int got = code < 0 ? code : poise_world_receive(coll->world, &raw);
    if (got > 0) {
        code = keep(coll, &raw);
        if (code < 0) {
            poise_message_free(&raw);
            return code;
        }
    }
    return got;
}

void coll_message_drain(void *arg)
{
    while (receive_one(arg) > 0) {
    }
}

void coll_message_free(struct coll_message *message)
{
    free(message->data);
    message->data = NULL;
}

static void remove_message(struct poise_coll *coll, size_t i)
{
    memmove(&coll->inbox[i], &coll->inbox[i + 1],
            (--coll->inbox_count - i) * sizeof *coll->inbox);
}

/* 1: found, 0: not, negative: a message that should not be. */
static int find(struct poise_coll *coll, struct coll_call *call,
                const int *sources, int count, int *which,
                struct coll_message *out)
{
    for (size_t i = 0; i < coll->inbox_count; i++) {
        struct coll_message *message = &coll->inbox[i];
        if (message->head.number > call->number) {
            continue;
        }
        if (message->head.code != 0) {
            coll_fail(call, message->head.code, message->head.culprit);
            return message->head.code;
        }
        if (message->head.number < call->number ||
            message->head.check != call->check) {
            return poise_error_set(EPROTO, "take part in a collective", NULL,
                                   "rank %d is in another call, or passed "
                                   "another count, type, operation or root",
                                   message->source);
        }
        for (int s = 0; s < count; s++) {
            if (message->source == sources[s]) {
                *which = s;
                *out = *message;
                remove_message(coll, i);
                return 1;
            }
        }
    }
    return 0;
}

int coll_message_receive(struct poise_coll *coll, struct coll_call *call,
                         const int *sources, int count, int *which,
                         struct coll_message *out)
{
    for (;;) {
        int found = find(coll, call, sources, count, which, out);
        if (found < 0) {
            coll_fail_here(coll, call, found);
            return found;
        }
        if (found > 0) {
            break;
        }
        int got = receive_one(coll);
        if (got == 0) {
            uint64_t begun = poise_clock_ns();
            poise_world_wait(coll->world, LOOK_NS);
            if (poise_clock_ns() - begun >= LOOK_NS) {
                got = coll_segment_check(&coll->segment);
            }
        }
        if (got < 0) {
            coll_fail_here(coll, call, got);
            return got;
        }
    }
    call->flags = out->head.flags > call->flags ? out->head.flags : call->flags;
    return 0;
}

int coll_message_flush(struct poise_coll *coll)
{
    if (coll->message.len < FLUSH_BYTES) {
        return 0;
    }
    while (poise_world_unsent(coll->world) > 0) {
        int got = receive_one(coll);
        if (got < 0) {
            return got;
        }
        if (got == 0) {
            poise_world_wait(coll->world, 20000);
        }
    }
    return 0;
}
