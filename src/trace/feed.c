/*
 * What is new in a trace's file, as bytes: pages of its head that are not what
 * they were, then records. The head comes first, since collectors stand there;
 * that the writer has ended comes last, when all its records are out.
 */
#include "mirror.h"
#include "view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct poise_trace_feed {
    struct poise_trace_view *view;
    unsigned char *sent; /* the head as it was sent, of zeros at first */
    struct poise_trace_cursor *cursors;
    unsigned rings;
    uint64_t lost_told;
    bool is_ready, has_ended;
};

enum { BATCH = 128, TRIES = 4 };

int poise_trace_feed_open(const char *path, struct poise_trace_feed **out)
{
    struct poise_trace_feed *feed = poise_alloc(1, sizeof *feed);
    if (!feed) {
        return -ENOMEM;
    }
    int code = poise_trace_open(path, &feed->view);
    if (code == 0) {
        feed->sent = poise_alloc(1, feed->view->head->head_bytes);
        code = feed->sent ? 0 : -ENOMEM;
    }
    if (code < 0) {
        poise_trace_feed_close(feed);
        return code;
    }
    *out = feed;
    return 0;
}

void poise_trace_feed_close(struct poise_trace_feed *feed)
{
    if (feed) {
        poise_trace_close(feed->view);
        free(feed->sent);
        free(feed->cursors);
        free(feed);
    }
}

static void put_chunk(struct poise_buf *out, enum mirror_kind kind,
                      uint32_t index, const void *bytes, size_t len)
{
    struct mirror_chunk chunk = {
        .kind = kind, .index = index, .bytes = (uint32_t)len};
    poise_buf_append(out, &chunk, sizeof chunk);
    poise_buf_append(out, bytes, len);
}

/* Word by word, since others write there; twice the same is whole. */
static void copy_page(const unsigned char *from, unsigned char *to)
{
    unsigned char again[MIRROR_PAGE_BYTES];
    for (int tries = 0; tries < TRIES; tries++) {
        for (size_t i = 0; i < MIRROR_PAGE_BYTES; i += sizeof(trace_word)) {
            *(trace_word *)(to + i) = __atomic_load_n(
                (const trace_word *)(from + i), __ATOMIC_ACQUIRE);
        }
        if (tries > 0 && memcmp(to, again, sizeof again) == 0) {
            return;
        }
        memcpy(again, to, sizeof again);
    }
}

static void put_head(struct poise_trace_feed *feed, struct poise_buf *out)
{
    const unsigned char *head = (const unsigned char *)feed->view->head;
    uint32_t pages = feed->view->head->head_bytes / MIRROR_PAGE_BYTES;
    _Alignas(8) unsigned char page[MIRROR_PAGE_BYTES];
    for (uint32_t i = 0; i < pages; i++) {
        unsigned char *sent = feed->sent + (size_t)i * MIRROR_PAGE_BYTES;
        copy_page(head + (size_t)i * MIRROR_PAGE_BYTES, page);
        if (memcmp(page, sent, sizeof page) != 0) {
            memcpy(sent, page, sizeof page);
            put_chunk(out, MIRROR_PAGE, i, page, sizeof page);
        }
    }
    if (!feed->is_ready) {
        put_chunk(out, MIRROR_READY, 0, NULL, 0);
        feed->is_ready = true;
    }
}

/* ---- rings -------------------------------------------------------------- */

static void put_ring_head(const struct poise_trace_cursor *cursor,
                          unsigned ring, struct poise_buf *out)
{
    struct poise_trace_ring head = {
        .owner = __atomic_load_n(&cursor->ring->owner, __ATOMIC_ACQUIRE),
        .owners = __atomic_load_n(&cursor->ring->owners, __ATOMIC_ACQUIRE),
        .tid = __atomic_load_n(&cursor->ring->tid, __ATOMIC_RELAXED),
    };
    for (size_t i = 0; i < sizeof head.name - 1; i++) {
        head.name[i] =
            __atomic_load_n(&cursor->ring->name[i], __ATOMIC_RELAXED);
    }
    put_chunk(out, MIRROR_RING, ring, &head, sizeof head);
}

static int add_rings(struct poise_trace_feed *feed)
{
    unsigned count = poise_trace_rings(feed->view);
    struct poise_trace_cursor *cursors =
        count > feed->rings
            ? poise_realloc(feed->cursors, count, sizeof *cursors)
            : feed->cursors;
    if (count > feed->rings && !cursors) {
        return -ENOMEM;
    }
    feed->cursors = cursors;
    for (; feed->rings < count; feed->rings++) {
        struct poise_trace_cursor *cursor = &cursors[feed->rings];
        int code = poise_trace_cursor(feed->view, feed->rings, cursor);
        if (code < 0) {
            return code;
        }
        if (cursor->ring->mask == 0) {
            break; /* not there yet */
        }
    }
    return 0;
}

/* A batch of each ring, while there is less than `most`; whether there was any
 * or may be more. */
static bool put_records(struct poise_trace_feed *feed, bool final, size_t most,
                        struct poise_buf *out)
{
    struct poise_trace_event events[BATCH];
    bool any = false;
    for (unsigned i = 0; i < feed->rings; i++) {
        if (out->len >= most) {
            return true;
        }
        feed->cursors[i].final = final;
        size_t count = poise_trace_read(&feed->cursors[i], BATCH, events);
        if (count > 0) {
            put_ring_head(&feed->cursors[i], i, out);
            put_chunk(out, MIRROR_RECORDS, i, events, count * sizeof *events);
            any = true;
        }
    }
    return any;
}

static void put_lost(struct poise_trace_feed *feed, struct poise_buf *out)
{
    uint64_t lost = 0;
    for (unsigned i = 0; i < feed->rings; i++) {
        lost += feed->cursors[i].lost + feed->cursors[i].unfinished;
    }
    if (lost != feed->lost_told) {
        put_chunk(out, MIRROR_LOST, 0, &lost, sizeof lost);
        feed->lost_told = lost;
    }
}

int poise_trace_feed_take(struct poise_trace_feed *feed, bool final,
                          size_t most_bytes, struct poise_buf *out)
{
    struct poise_trace_info info;
    poise_trace_info(feed->view, &info);
    int code = add_rings(feed);
    if (code < 0) {
        return code;
    }
    put_head(feed, out);
    bool more = true;
    size_t most = out->len + most_bytes;
    while (more && out->len < most && !out->error) {
        more = put_records(feed, final || info.ended, most, out);
    }
    put_lost(feed, out);
    if (!more && info.ended && !feed->has_ended) {
        put_chunk(out, MIRROR_ENDED, 0, NULL, 0);
        feed->has_ended = true;
    }
    return out->error ? out->error : more;
}
