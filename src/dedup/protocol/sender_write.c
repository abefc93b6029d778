/*
 * Messages that wait for more of their kind: a run that may go on, missing
 * segments that are sent (or predicted) together, fingerprints.
 *
 * What is held are the group's data from held_offset on, its lengths from
 * held_first on, and held_count segments. Nothing else may be written to the
 * block before it: every function that writes calls wire_write_held first.
 */
#include "sender.h"

#include <poise/store.h>

#include <errno.h>

enum {
    ANCHORS_FROM = 64, /* containers of a receiver */
    ANCHORS_BACK = 8,  /* in front of what a delta is made against */
};

/* Whether one of the two caches may not find all that it has. */
bool wire_may_not_find(const struct poise_dedup_peer *peer)
{
    return peer->their_containers >= ANCHORS_FROM ||
           dedup_store_is_sampled(peer->options.store);
}

/* Where what a delta is made against begins behind: the cursor, if it is known
 * to the receiver or can be named, or one not far in front of it: 1. */
static int find_anchor(struct poise_dedup_peer *peer, uint64_t *anchor)
{
    struct poise_dedup_store *store = peer->options.store;
    uint64_t at = peer->sender.cursor, least = UINT64_MAX;
    int code = 1;

    *anchor = at;
    if (peer->sender.anchored || !wire_may_not_find(peer)) {
        return 1;
    }
    for (int i = 0; i < ANCHORS_BACK && code > 0; i++) {
        const struct dedup_entry *entry;
        code = dedup_store_entry(store, at, &entry);
        if (code > 0 && dedup_rank(entry->digest) < least &&
            dedup_store_names(store, entry->fingerprint, at)) {
            least = dedup_rank(entry->digest);
            *anchor = at;
        }
        code = code > 0 ? poise_dedup_store_step(store, at, -1, &at) : code;
    }
    return code < 0 ? code : least < UINT64_MAX;
}

/* Where the receiver's cursor has to be before something relative to it. */
static int put_anchor(struct poise_dedup_peer *peer, uint64_t at)
{
    struct wire_sender *sender = &peer->sender;
    struct poise_buf *raw = &peer->blocks.raw;
    struct poise_dedup_stored stored;
    uint32_t end = (uint32_t)sender->open->data.len;
    uint32_t count = wire_count(&sender->open->lens, sizeof(uint32_t));
    int code;

    if (sender->anchored) {
        return 1;
    }
    code = poise_dedup_store_read(peer->options.store, at, &stored);
    if (code <= 0) {
        return code;
    }
    poise_buf_putc(raw, WIRE_RUN);
    wire_put_named(peer, stored.data, stored.len);
    poise_buf_varint(raw, 0);
    sender->anchored = true;
    sender->cursor = at;
    code = wire_group_add_item(sender->open, WIRE_ITEM_OWN, end, count);
    return code < 0 ? code : 1;
}

/* What lies behind a position in the cache. */
static int collect_base(struct poise_dedup_peer *peer, uint64_t at,
                        size_t wanted, struct poise_buf *base, uint32_t *count)
{
    size_t most = 2 * wanted + 1024;

    most = most < WIRE_BASE_MOST ? most : WIRE_BASE_MOST;
    *count = 0;
    for (;;) {
        struct poise_dedup_stored stored;
        int code = poise_dedup_store_step(peer->options.store, at, 1, &at);
        /* What is new in this group the receiver does not have yet. */
        if (code == 1 && peer->sender.has_added && at >= peer->sender.added) {
            return 0;
        }
        if (code == 1) {
            code = poise_dedup_store_read(peer->options.store, at, &stored);
        }
        if (code <= 0 || base->len + stored.len > most) {
            return code < 0 ? code : 0;
        }
        if (poise_buf_append(base, stored.data, stored.len) < 0) {
            return -ENOMEM;
        }
        (*count)++;
    }
}

static int put_lens(struct poise_dedup_peer *peer, uint32_t first)
{
    const struct poise_buf *lens = &peer->sender.open->lens;
    uint32_t count = wire_count(lens, sizeof(uint32_t));
    int code = poise_buf_varint(&peer->blocks.raw, count - first);

    for (uint32_t i = first; i < count; i++) {
        code = poise_buf_varint(
            &peer->blocks.raw, ((const uint32_t *)(const void *)lens->data)[i]);
    }
    return code;
}

/* The group being made refers to what lies at the cursor. */
static void set_belief(struct wire_sender *sender)
{
    sender->open->believes = true;
    sender->open->believes_old |=
        !sender->has_brought || sender->cursor < sender->brought;
}

/* Segments that the receiver does not have: the group's data from held_offset
 * on, and what they may be told by. */
struct missing {
    const unsigned char *data;
    size_t len;
    struct poise_buf base; /* what lies behind the cursor, so many segments: */
    uint32_t base_count;   /* 0: nothing that is known */
    struct poise_buf
        residual; /* what is left of them when they are predicted */
};

/* Find what a delta can be made against, and put the receiver's cursor in
 * front of it: 1; 0 if there is nothing. */
static int find_base(struct poise_dedup_peer *peer, struct missing *missing)
{
    struct wire_sender *sender = &peer->sender;
    uint64_t anchor;
    int code;

    if (!sender->has_cursor || sender->hit_rate < HIT_RATE_ENOUGH ||
        sender->open->number < sender->distrust_until) {
        return 0;
    }
    code = find_anchor(peer, &anchor);
    if (code > 0) {
        code = collect_base(peer, anchor, missing->len, &missing->base,
                            &missing->base_count);
        /* The anchor is an item of its own, before this one. */
        code = code == 0 && missing->base_count > 0 ? put_anchor(peer, anchor)
                                                    : code;
    }
    return code;
}

/* Write them in the way that takes the fewest bytes; *kind: which. */
static int put_shortest(struct poise_dedup_peer *peer, struct missing *missing,
                        bool has_base, enum wire_item_kind *kind)
{
    struct wire_sender *sender = &peer->sender;
    struct poise_buf *raw = &peer->blocks.raw;
    size_t begun = raw->len;
    int code = 0;

    *kind = WIRE_ITEM_OWN;
    if (has_base) {
        poise_buf_putc(raw, WIRE_DELTA);
        poise_buf_varint(raw, missing->base_count);
        put_lens(peer, sender->held_first);
        code = wire_delta_make((const unsigned char *)missing->base.data,
                               missing->base.len, missing->data, missing->len,
                               raw);
    }
    if (code >= 0) {
        code = wire_residual_try(
            &sender->residual, &sender->open->data, sender->held_offset,
            has_base ? raw->len - begun : missing->len, &missing->residual);
    }
    if (code > 0) {
        /* It takes the place of the delta. */
        raw->len = begun;
        poise_buf_putc(raw, WIRE_RESIDUAL);
        put_lens(peer, sender->held_first);
        peer->stats.by_residual += missing->len;
        return poise_buf_append(raw, missing->residual.data,
                                missing->residual.len);
    }
    if (code == 0 && has_base) {
        *kind = WIRE_ITEM_DELTA;
        set_belief(sender);
        peer->stats.by_delta += missing->len;
    } else if (code == 0) {
        poise_buf_putc(raw, WIRE_DATA);
        put_lens(peer, sender->held_first);
        peer->stats.by_data += missing->len;
        return poise_buf_append(raw, missing->data, missing->len);
    }
    return code;
}

static int put_missing(struct poise_dedup_peer *peer)
{
    struct wire_sender *sender = &peer->sender;
    struct wire_sent *group = sender->open;
    struct missing missing = {
        .data = (const unsigned char *)group->data.data + sender->held_offset,
        .len = group->data.len - sender->held_offset,
    };
    enum wire_item_kind kind;
    int code = find_base(peer, &missing);

    code = code < 0 ? code : put_shortest(peer, &missing, code > 0, &kind);
    poise_buf_free(&missing.base);
    poise_buf_free(&missing.residual);
    return code < 0 ? code
                    : wire_group_add_item(group, kind, sender->held_offset,
                                          sender->held_first);
}

/* The fingerprint of the i-th segment of the group, at that offset; that after
 * it is at the offset that is returned. */
static uint32_t put_segment_print(struct poise_dedup_peer *peer,
                                  uint32_t offset, uint32_t i)
{
    const struct wire_sent *group = peer->sender.open;
    uint32_t len = ((const uint32_t *)(const void *)group->lens.data)[i];

    wire_put_named(peer, group->data.data + offset, len);
    return offset + len;
}

static int put_run(struct poise_dedup_peer *peer)
{
    struct wire_sender *sender = &peer->sender;
    struct poise_buf *raw = &peer->blocks.raw;

    if (sender->held_named) {
        poise_buf_putc(raw, WIRE_RUN);
        put_segment_print(peer, sender->held_offset, sender->held_first);
    } else {
        poise_buf_putc(raw, WIRE_NEXT);
        poise_buf_varint(raw, wire_zigzag(sender->held_skip));
    }
    poise_buf_varint(raw, sender->held_count);
    set_belief(sender);
    peer->stats.by_run += sender->open->data.len - sender->held_offset;
    return wire_group_add_item(sender->open, WIRE_ITEM_RUN, sender->held_offset,
                               sender->held_first);
}

/* Their items are there already. */
static int put_prints(struct poise_dedup_peer *peer)
{
    struct wire_sender *sender = &peer->sender;
    struct poise_buf *raw = &peer->blocks.raw;

    uint32_t offset = sender->held_offset;

    poise_buf_putc(raw, WIRE_FINGERPRINTS);
    poise_buf_varint(raw, sender->held_count);
    for (uint32_t i = 0; i < sender->held_count; i++) {
        offset = put_segment_print(peer, offset, sender->held_first + i);
    }
    return raw->error;
}

int wire_write_held(struct poise_dedup_peer *peer)
{
    struct wire_sender *sender = &peer->sender;
    enum wire_held held = sender->held;
    int code;

    if (held == WIRE_HELD_NONE) {
        return 0;
    }
    code = wire_blocks_room(&peer->blocks, 3 * POISE_DEDUP_SEGMENT_MOST);
    if (code < 0) {
        return code;
    }
    sender->held = WIRE_HELD_NONE;
    code = held == WIRE_HELD_RUN    ? put_run(peer)
           : held == WIRE_HELD_MISS ? put_missing(peer)
                                    : put_prints(peer);
    return code < 0 ? code : peer->blocks.raw.error;
}

/* Begin to hold something else. */
int wire_hold(struct poise_dedup_peer *peer, enum wire_held what)
{
    struct wire_sender *sender = &peer->sender;
    int code = 0;

    if (sender->held == what) {
        return 0;
    }
    code = wire_write_held(peer);
    sender->held = what;
    sender->held_offset = (uint32_t)sender->open->data.len;
    sender->held_first = wire_count(&sender->open->lens, sizeof(uint32_t));
    sender->held_count = 0;
    return code;
}
