/*
 * The connections of a link: link->conns has all of them, in the order of their
 * numbers, link->streams those that have a stream.
 *
 * A connection has its stream until both directions are over on the link.
 * After that the near end may give the stream to another one at once, since
 * what it says of that comes behind all of this one; but here this one may
 * still hand on what came to a user who reads slowly. It *drains*: it is in
 * link->conns only, and its stream is free. Numbers of streams rest all the
 * same before they are used again, for ends from before, which break the link
 * when OPEN finds one that drains.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST = 64, /* places */
    FEW = 64,   /* connections, for which numbers of one byte do */
    SHORT = 128,
};

int tunnel_streams_create(struct tunnel_link *link)
{
    link->streams = poise_alloc(TUNNEL_STREAMS, sizeof *link->streams);
    return link->streams ? 0 : -ENOMEM;
}

int tunnel_streams_add(struct tunnel_conn *conn)
{
    struct tunnel_link *link = conn->link;

    if (link->count == link->cap) {
        unsigned cap = link->cap > 0 ? 2 * link->cap : FIRST;
        struct tunnel_conn **more = poise_alloc(cap, sizeof *more);
        if (!more) {
            return -ENOMEM;
        }
        if (link->count > 0) {
            memcpy(more, link->conns, link->count * sizeof *more);
        }
        free(link->conns);
        link->conns = more;
        link->cap = cap;
    }
    /* Its number is above all before. */
    link->conns[link->count++] = conn;
    link->streams[conn->stream] = conn;
    link->tunnel->conns++;
    return 0;
}

/* The place of the first with this number, or a higher one. */
static unsigned place_of(const struct tunnel_link *link, uint64_t id)
{
    unsigned low = 0, high = link->count;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (link->conns[middle]->id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct tunnel_conn *tunnel_streams_find(const struct tunnel_link *link,
                                        uint64_t id)
{
    unsigned at = place_of(link, id);

    return at < link->count && link->conns[at]->id == id ? link->conns[at]
                                                         : NULL;
}

void tunnel_streams_release(struct tunnel_conn *conn)
{
    struct tunnel_link *link = conn->link;

    if (conn->sent_end && conn->received_end &&
        link->streams[conn->stream] == conn) {
        link->streams[conn->stream] = NULL;
        link->draining++;
    }
}

void tunnel_streams_remove(struct tunnel_conn *conn)
{
    struct tunnel_link *link = conn->link;
    unsigned at = place_of(link, conn->id);

    if (link->streams[conn->stream] == conn) {
        link->streams[conn->stream] = NULL;
    } else {
        link->draining--;
    }
    link->count--;
    memmove(link->conns + at, link->conns + at + 1,
            (link->count - at) * sizeof(struct tunnel_conn *));
    link->tunnel->conns--;
}

uint32_t tunnel_streams_next(struct tunnel_link *link)
{
    unsigned used = link->count - link->draining;
    uint32_t end = link->stream_end, at = link->last_stream;

    if (used + 1 >= end || link->draining >= link->tunnel->draining_most) {
        return 0;
    }
    if (used < FEW && end > SHORT) {
        end = SHORT;
    }
    do {
        at = at + 1 < end ? at + 1 : 1;
    } while (link->streams[at]);
    return at;
}
