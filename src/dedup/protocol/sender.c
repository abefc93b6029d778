/*
 * From pieces to groups of items. A segment is sent in the cheapest way that
 * is believed to do: as one more of a run that lies in the receiver's cache in
 * the same order as in the own one, as a delta against what follows the run,
 * by its fingerprint, or as it is. A belief that turns out wrong is given up
 * for a while.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEAT_FULL = 256,
    HEAT_SHARE = 16, /* of which one segment is worth one */
    HEAT_ENOUGH = 128,
    BACKOFF = 4, /* groups, after a belief failed; doubles */
    BACKOFF_MOST = 1 << 14,
    USELESS = 4, /* groups of fingerprints that all missed */
    DIRECT = 8,  /* groups without fingerprints then; doubles */
    DIRECT_MOST = 256,
    SUPPLIES = 2, /* once because it is missing, once because it is wrong */
    ANCHORS = 32, /* segments of which one says where a run is */
    ANCHORS_FROM = 64, /* containers of a receiver */
    ANCHORS_BACK = 8,  /* in front of what a delta is made against */
    SPARES = 8,
    SMALL_BYTES = 1 << 16, /* a group's data beyond these get all their room */
};

/* ---- groups ------------------------------------------------------------- */

static void sent_free(struct wire_sent *group)
{
    if (group) {
        poise_buf_free(&group->data);
        poise_buf_free(&group->items);
        poise_buf_free(&group->lens);
        free(group);
    }
}

static void sent_free_all(struct wire_sent *group)
{
    while (group) {
        struct wire_sent *next = group->next;
        sent_free(group);
        group = next;
    }
}

void wire_sender_free(struct wire_sender *sender)
{
    sent_free_all(sender->oldest);
    sent_free_all(sender->spare);
    sent_free(sender->open);
    ZSTD_freeCCtx(sender->residual.judge);
}

/* One that is done with: memory that is given back comes back page by page,
 * each of them cleared. */
static void put_spare(struct wire_sender *sender, struct wire_sent *group)
{
    if (sender->spares == SPARES) {
        sent_free(group);
        return;
    }
    poise_buf_reset(&group->data);
    poise_buf_reset(&group->items);
    poise_buf_reset(&group->lens);
    *group = (struct wire_sent){.next = sender->spare,
                                .data = group->data,
                                .items = group->items,
                                .lens = group->lens};
    sender->spare = group;
    sender->spares++;
}

static struct wire_sent *take_spare(struct wire_sender *sender)
{
    struct wire_sent *group = sender->spare;

    if (group) {
        sender->spare = group->next;
        sender->spares--;
        group->next = NULL;
    }
    return group;
}

static uint32_t count_of(const struct poise_buf *buf, size_t each)
{
    return (uint32_t)(buf->len / each);
}

static int open_group(struct poise_dedup_peer *peer)
{
    struct wire_sender *sender = &peer->sender;

    if (sender->open) {
        return 0;
    }
    sender->open = take_spare(sender);
    if (!sender->open) {
        sender->open = poise_alloc(1, sizeof *sender->open);
    }
    if (!sender->open) {
        return -ENOMEM;
    }
    sender->open->number = sender->numbers++;
    sender->stream = 0;
    sender->anchored = false;
    sender->has_added = false;
    return 0;
}

static int add_item(struct wire_sent *group, uint32_t offset, uint32_t first)
{
    struct wire_item item = {
        .offset = offset,
        .len = (uint32_t)group->data.len - offset,
        .first = first,
        .count = count_of(&group->lens, sizeof(uint32_t)) - first,
        .print = group->print,
    };

    return poise_buf_append(&group->items, &item, sizeof item);
}

/* ---- writing what is held ----------------------------------------------- */

/* Whether one of the two caches may not find all that it has. */
static bool may_not_find(const struct poise_dedup_peer *peer)
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
    if (peer->sender.anchored || !may_not_find(peer)) {
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
    uint32_t count = count_of(&sender->open->lens, sizeof(uint32_t));
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
    code = add_item(sender->open, end, count);
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
    uint32_t count = count_of(lens, sizeof(uint32_t));
    int code = poise_buf_varint(&peer->blocks.raw, count - first);

    for (uint32_t i = first; i < count; i++) {
        code = poise_buf_varint(
            &peer->blocks.raw, ((const uint32_t *)(const void *)lens->data)[i]);
    }
    return code;
}

/* Segments that the receiver does not have, from the group's data. */
static int put_missing(struct poise_dedup_peer *peer)
{
    struct wire_sender *sender = &peer->sender;
    struct wire_sent *group = sender->open;
    struct poise_buf *raw = &peer->blocks.raw;
    const unsigned char *data =
        (const unsigned char *)group->data.data + sender->held_offset;
    size_t len = group->data.len - sender->held_offset;
    struct poise_buf base = {0};
    uint32_t count = 0;
    struct poise_buf residual = {0};
    uint64_t anchor;
    size_t begun;
    bool as_delta;
    int code = 0;

    if (sender->has_cursor && sender->heat >= HEAT_ENOUGH &&
        group->number >= sender->distrust_until) {
        code = find_anchor(peer, &anchor);
        code = code > 0 ? collect_base(peer, anchor, len, &base, &count) : code;
    }
    if (code == 0 && count > 0) {
        /* The anchor is an item of its own, before this one. */
        code = put_anchor(peer, anchor);
    }
    begun = raw->len;
    as_delta = code > 0;
    if (code > 0) {
        poise_buf_putc(raw, WIRE_DELTA);
        poise_buf_varint(raw, count);
        put_lens(peer, sender->held_first);
        code = wire_delta_make((const unsigned char *)base.data, base.len, data,
                               len, raw);
    }
    if (code >= 0) {
        code = wire_residual_try(&sender->residual, &group->data,
                                 sender->held_offset,
                                 as_delta ? raw->len - begun : len, &residual);
    }
    if (code > 0) {
        /* It takes the place of the delta. */
        raw->len = begun;
        poise_buf_putc(raw, WIRE_RESIDUAL);
        put_lens(peer, sender->held_first);
        code = poise_buf_append(raw, residual.data, residual.len);
        peer->stats.by_residual += len;
    } else if (code == 0 && as_delta) {
        group->believes = true;
        peer->stats.by_delta += len;
    } else if (code == 0) {
        poise_buf_putc(raw, WIRE_DATA);
        put_lens(peer, sender->held_first);
        code = poise_buf_append(raw, data, len);
        peer->stats.by_data += len;
    }
    poise_buf_free(&base);
    poise_buf_free(&residual);
    return code < 0 ? code
                    : add_item(group, sender->held_offset, sender->held_first);
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
    sender->open->believes = true;
    peer->stats.by_run += sender->open->data.len - sender->held_offset;
    return add_item(sender->open, sender->held_offset, sender->held_first);
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

static int settle(struct poise_dedup_peer *peer)
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
static int hold(struct poise_dedup_peer *peer, enum wire_held what)
{
    struct wire_sender *sender = &peer->sender;
    int code = 0;

    if (sender->held == what) {
        return 0;
    }
    code = settle(peer);
    sender->held = what;
    sender->held_offset = (uint32_t)sender->open->data.len;
    sender->held_first = count_of(&sender->open->lens, sizeof(uint32_t));
    sender->held_count = 0;
    return code;
}

int wire_sender_close_group(struct poise_dedup_peer *peer)
{
    struct wire_sender *sender = &peer->sender;
    struct wire_sent *group = sender->open;
    unsigned char hash[POISE_DEDUP_GROUP_BYTES];
    int code = group ? settle(peer) : 0;

    if (!group || code < 0) {
        return code;
    }
    code = poise_dedup_hasher_update(peer->hasher, group->data.data,
                                     group->data.len);
    if (code == 0) {
        code = poise_dedup_hasher_final(peer->hasher, hash);
    }
    if (code == 0) {
        code = wire_blocks_room(&peer->blocks, 1 + sizeof hash);
    }
    if (code < 0) {
        return code;
    }
    poise_buf_putc(&peer->blocks.raw, WIRE_GROUP);
    code = poise_buf_append(&peer->blocks.raw, hash, sizeof hash);
    group->weight = group->data.len + WIRE_GROUP_WEIGHT +
                    (uint64_t)WIRE_ITEM_WEIGHT *
                        count_of(&group->items, sizeof(struct wire_item));
    sender->in_flight += group->weight;
    group->waits = peer->leads ? (uint32_t)peer->member_count : 1;
    for (size_t i = 0; i < peer->member_count; i++) {
        peer->members[i]->member.in_flight += group->weight;
    }
    peer->blocks.behind += group->weight;
    *(sender->newest ? &sender->newest->next : &sender->oldest) = group;
    sender->newest = group;
    sender->open = NULL;
    peer->stats.groups++;
    if (code == 0 && peer->blocks.behind >= WIRE_BLOCK_BEHIND) {
        /* A few bytes may name very much, and a sender who waits for its
         * arrival would wait for ever for what nobody has sent. */
        code = wire_blocks_close(&peer->blocks);
    }
    return code;
}

static int close_full(struct poise_dedup_peer *peer)
{
    const struct wire_sent *group = peer->sender.open;

    if (peer->sender.is_update) {
        return 0;
    }
    return group->data.len >= WIRE_GROUP_BYTES ||
                   count_of(&group->items, sizeof(struct wire_item)) >=
                       WIRE_GROUP_ITEMS ||
                   group->prints >= WIRE_GROUP_PRINTS
               ? wire_sender_close_group(peer)
               : 0;
}

/* ---- segments ----------------------------------------------------------- */

/* Put the piece's bytes into the group. */
static int take_bytes(struct wire_sent *group,
                      const struct poise_dedup_piece *piece)
{
    enum { MOST = WIRE_GROUP_BYTES + POISE_DEDUP_SEGMENT_MOST };
    struct poise_buf *data = &group->data;
    uint32_t len = (uint32_t)piece->len;
    int code;

    if (data->len + piece->len > SMALL_BYTES && data->cap < MOST &&
        !poise_buf_reserve(data, MOST - data->len)) {
        return -ENOMEM;
    }
    code = poise_buf_append(data, piece->data, piece->len);
    return code < 0 ? code : poise_buf_append(&group->lens, &len, sizeof len);
}

/* A segment's fingerprint in the own cache, made when it is wanted. */
struct own_print {
    bool known;
    uint64_t value; /* all 64 bits */
};

static uint64_t own_print(const struct poise_dedup_peer *peer,
                          const struct poise_dedup_piece *piece,
                          struct own_print *print)
{
    if (!print->known) {
        print->value = poise_dedup_fingerprint(
            dedup_store_key(peer->options.store), piece->data, piece->len);
        print->known = true;
    }
    return print->value;
}

/* Where the own cache has a segment: 1. Most often it is the next one. */
static int look_up(struct poise_dedup_peer *peer,
                   const struct poise_dedup_piece *piece,
                   struct own_print *print, uint64_t *at)
{
    struct poise_dedup_store *store = peer->options.store;
    int code;

    if (peer->sender.has_cursor &&
        poise_dedup_store_step(store, peer->sender.cursor, 1, at) == 1) {
        code = dedup_store_is(store, *at, piece->data, piece->len);
        if (code != 0) {
            return code;
        }
    }
    code = poise_dedup_store_find(store, own_print(peer, piece, print), at);
    return code <= 0 ? code
                     : dedup_store_is(store, *at, piece->data, piece->len);
}

/* How many segments on from the cursor `at` is, if that is near. */
static bool distance(const struct poise_dedup_peer *peer, uint64_t at,
                     int64_t *out)
{
    const struct wire_sender *sender = &peer->sender;
    const struct poise_dedup_store *store = peer->options.store;

    /* Caches that do not find all that they have are alike over short ways
     * only. */
    return sender->has_cursor && sender->anchored &&
           dedup_store_distance(
               store, sender->cursor, at,
               dedup_store_is_sampled(store) ? ANCHORS : WIRE_SKIP_MOST, out);
}

/* Of the segments from `at` on, the one that a receiver is most likely to find,
 * as an index that is full keeps those of low rank: 1, how many segments on it
 * is, and where. 0: there is none that is found there. */
static int best_anchor(struct poise_dedup_peer *peer, uint64_t at, int *by,
                       uint64_t *best_at)
{
    const struct wire_sender *sender = &peer->sender;
    struct poise_dedup_store *store = peer->options.store;
    uint64_t least = UINT64_MAX;
    int code = 1;

    for (int i = 0; i < ANCHORS && code > 0; i++) {
        const struct dedup_entry *entry;
        code = dedup_store_entry(store, at, &entry);
        if (code <= 0) {
            break;
        }
        /* Of two copies, both ends take the one that the index has. */
        if (dedup_rank(entry->digest) < least &&
            dedup_store_names(store, entry->fingerprint, at)) {
            least = dedup_rank(entry->digest);
            *best_at = at;
            *by = i;
        }
        code = poise_dedup_store_step(store, at, 1, &at);
        /* What is new in this group the receiver does not have yet. */
        if (sender->has_added && at >= sender->added) {
            break;
        }
    }
    return code < 0 ? code : least < UINT64_MAX;
}

/* Put the receiver's cursor to a segment that it finds by its fingerprint: 1.
 */
static int send_anchor(struct poise_dedup_peer *peer, uint64_t anchor)
{
    struct wire_sender *sender = &peer->sender;
    struct wire_sent *group = sender->open;
    struct poise_dedup_stored stored;
    int code = settle(peer);

    code = code < 0 ? code : wire_blocks_room(&peer->blocks, 32);
    if (code == 0) {
        code = poise_dedup_store_read(peer->options.store, anchor, &stored);
    }
    if (code <= 0) {
        return code;
    }
    poise_buf_putc(&peer->blocks.raw, WIRE_RUN);
    wire_put_named(peer, stored.data, stored.len);
    poise_buf_varint(&peer->blocks.raw, 0);
    sender->has_cursor = sender->anchored = true;
    sender->cursor = anchor;
    code = add_item(group, (uint32_t)group->data.len,
                    count_of(&group->lens, sizeof(uint32_t)));
    return code < 0 ? code : 1;
}

/* See that the receiver knows where `at` is, or can be told by its own
 * fingerprint: 1; 0 if there is no way. *near: how many segments on from the
 * cursor, *by, it is. */
static int approach(struct poise_dedup_peer *peer, uint64_t at, bool *near,
                    int64_t *by)
{
    uint64_t anchor = at;
    int code, on = 0;

    *near = distance(peer, at, by);
    if (*near || !may_not_find(peer)) {
        return 1;
    }
    code = best_anchor(peer, at, &on, &anchor);
    if (code == 0) {
        /* One that finds all finds a copy of it, too. */
        return !dedup_store_is_sampled(peer->options.store);
    }
    if (code > 0 && on > 0) {
        code = send_anchor(peer, anchor);
        *near = code > 0;
        *by = -on;
    }
    return code;
}

/* 1; 0 if the receiver cannot be told where it is. */
static int send_run(struct poise_dedup_peer *peer,
                    const struct poise_dedup_piece *piece, uint64_t at)
{
    struct wire_sender *sender = &peer->sender;
    int64_t by = 0;
    bool near;
    int code = approach(peer, at, &near, &by);

    if (code <= 0) {
        return code;
    }
    if (sender->held == WIRE_HELD_RUN && !(near && by == 1)) {
        code = settle(peer);
        if (code < 0) {
            return code;
        }
    }
    if (sender->held != WIRE_HELD_RUN) {
        code = hold(peer, WIRE_HELD_RUN);
        if (code < 0) {
            return code;
        }
        sender->held_named = !near;
        sender->held_skip = by - 1;
        sender->anchored = true;
    }
    sender->held_count++;
    sender->has_cursor = true;
    sender->cursor = at;
    code = take_bytes(sender->open, piece);
    return code < 0 ? code : 1;
}

static int send_print(struct poise_dedup_peer *peer,
                      const struct poise_dedup_piece *piece)
{
    struct wire_sender *sender = &peer->sender;
    struct wire_sent *group;
    uint32_t offset, first;
    int code = hold(peer, WIRE_HELD_PRINTS);

    if (code < 0) {
        return code;
    }
    group = sender->open;
    offset = (uint32_t)group->data.len;
    first = count_of(&group->lens, sizeof(uint32_t));
    sender->held_count++;
    group->prints++;
    peer->stats.by_fingerprint += piece->len;
    code = take_bytes(group, piece);
    group->print = true;
    code = code < 0 ? code : add_item(group, offset, first);
    group->print = false;
    return code;
}

static int send_missing(struct poise_dedup_peer *peer,
                        const struct poise_dedup_piece *piece)
{
    struct wire_sender *sender = &peer->sender;
    int code = 0;

    if (sender->held == WIRE_HELD_MISS &&
        sender->open->data.len - sender->held_offset + piece->len >
            WIRE_MISS_MOST) {
        code = settle(peer);
    }
    if (code == 0) {
        code = hold(peer, WIRE_HELD_MISS);
    }
    /* An update is shown before all that lies in front of it is known. */
    wire_grid_of(sender->is_update ? NULL : piece->array,
                 &sender->residual.grid);
    return code < 0 ? code : take_bytes(sender->open, piece);
}

/* Whether the receiver need not be asked. */
static bool is_surely_new(const struct poise_dedup_peer *peer, bool found)
{
    const struct wire_sender *sender = &peer->sender;

    return peer->their_containers == 0 ||
           sender->open->number < sender->direct_until ||
           (!found && sender->heat >= HEAT_ENOUGH &&
            sender->open->number >= sender->distrust_until);
}

/* Into the own cache, as the receiver does it with what comes as data. */
static int add_segment(struct poise_dedup_peer *peer,
                       const struct poise_dedup_piece *piece,
                       struct own_print *print)
{
    struct wire_sender *sender = &peer->sender;
    struct poise_dedup_store *store = peer->options.store;
    uint64_t at;
    int code = dedup_store_add(store, own_print(peer, piece, print),
                               piece->data, piece->len, &at);

    peer->stats.cache_errors += code < 0 && code != -ENOMEM;
    if (code == 1) {
        if (!sender->has_added) {
            sender->has_added = true;
            sender->added = at;
        }
        if (!sender->has_brought) {
            sender->has_brought = true;
            sender->brought = at;
        }
    }
    return code == -ENOMEM ? code : 0;
}

static int send_segment(struct poise_dedup_peer *peer,
                        const struct poise_dedup_piece *piece,
                        struct own_print *print)
{
    struct wire_sender *sender = &peer->sender;
    struct poise_dedup_store *store = peer->options.store;
    uint64_t at = 0;
    int found = look_up(peer, piece, print, &at), rc;
    bool is_ours, is_theirs, is_full = dedup_store_is_sampled(store), as_data;

    if (found < 0) {
        return found;
    }
    /* What this group brings the receiver does not have before it is proved. */
    is_ours = found && sender->has_added && at >= sender->added;
    sender->heat -= sender->heat / HEAT_SHARE;
    sender->heat += found && !is_ours ? HEAT_FULL / HEAT_SHARE : 0;
    /* A cache that was empty has what this connection brought. */
    is_theirs = found && !is_ours &&
                (peer->their_containers > 0 ||
                 (sender->has_brought && at >= sender->brought));
    if (is_theirs && sender->open->number >= sender->distrust_until) {
        rc = send_run(peer, piece, at);
        if (rc != 0) {
            return rc < 0 ? rc : 0;
        }
    }
    /* Found only because its container is in memory: the receiver's may not
     * be. */
    as_data = is_ours || (!is_theirs && is_surely_new(peer, found)) ||
              (found && is_full &&
               !dedup_store_names(store, own_print(peer, piece, print), at));
    if (!found || (as_data && is_full)) {
        rc = add_segment(peer, piece, print);
        if (rc < 0) {
            return rc;
        }
    }
    return as_data ? send_missing(peer, piece) : send_print(peer, piece);
}

/* ---- other pieces ------------------------------------------------------- */

static int send_plain(struct poise_dedup_peer *peer,
                      const struct poise_dedup_piece *piece)
{
    struct wire_sent *group = peer->sender.open;
    struct poise_buf *raw = &peer->blocks.raw;
    uint32_t offset = (uint32_t)group->data.len;
    uint32_t first = count_of(&group->lens, sizeof(uint32_t));
    int code = settle(peer);

    if (code == 0) {
        code = wire_blocks_room(&peer->blocks, piece->len + 32);
    }
    if (code < 0) {
        return code;
    }
    if (piece->kind == POISE_DEDUP_FILL) {
        poise_buf_putc(raw, WIRE_FILL);
        poise_buf_varint(raw, piece->len);
        poise_buf_varint(raw, piece->period);
        poise_buf_append(raw, piece->data, piece->period);
        peer->stats.by_fill += piece->len;
    } else {
        poise_buf_putc(raw, WIRE_LITERAL);
        poise_buf_varint(raw, piece->len);
        poise_buf_append(raw, piece->data, piece->len);
        peer->stats.by_data += piece->len;
    }
    code = take_bytes(group, piece);
    return code < 0 ? code : add_item(group, offset, first);
}

/* Say which stream it is, and where the piece lies if that is not clear. */
static int put_place(struct poise_dedup_peer *peer, struct wire_stream *stream,
                     const struct poise_dedup_piece *piece, bool *placed)
{
    const struct poise_dedup_place *place = &piece->place;
    struct poise_buf *raw = &peer->blocks.raw;
    bool is_next = peer->sender.is_update ||
                   (place->x == stream->sent_at && place->y == 0 &&
                    place->height == 1 && place->width == piece->len);
    int code = 0;

    *placed = !is_next;
    if (is_next && peer->sender.stream == stream->number) {
        return 0;
    }
    code = settle(peer);
    if (code == 0) {
        code = wire_blocks_room(&peer->blocks, 64);
    }
    if (peer->sender.stream != stream->number) {
        poise_buf_putc(raw, WIRE_STREAM);
        poise_buf_varint(raw, stream->number);
        peer->sender.stream = stream->number;
    }
    if (!is_next) {
        poise_buf_putc(raw, WIRE_PLACE);
        poise_buf_varint(raw,
                         wire_zigzag((int64_t)(place->x - stream->sent_at)));
        poise_buf_varint(raw, place->y);
        poise_buf_varint(raw, place->width);
        poise_buf_varint(raw, place->height);
    }
    return code < 0 ? code : raw->error;
}

static bool is_segment(const struct poise_dedup_piece *piece)
{
    return piece->kind == POISE_DEDUP_SEGMENT ||
           piece->kind == POISE_DEDUP_RANGE;
}

static int send_piece(struct poise_dedup_peer *peer, struct wire_stream *stream,
                      const struct poise_dedup_piece *piece,
                      struct own_print *print)
{
    bool placed;
    int code = open_group(peer);

    if (code == 0) {
        code = put_place(peer, stream, piece, &placed);
    }
    if (code == 0) {
        code = is_segment(piece) ? send_segment(peer, piece, print)
                                 : send_plain(peer, piece);
    }
    if (code == 0 && placed) {
        /* A place is that of one segment. */
        code = settle(peer);
    }
    if (code < 0) {
        return code;
    }
    stream->sent_at = piece->place.x + piece->len;
    peer->stats.data_out += piece->len;
    return close_full(peer);
}

int wire_sender_pieces(struct poise_dedup_peer *peer,
                       struct wire_stream *stream,
                       const struct poise_dedup_piece *pieces, size_t count)
{
    struct own_print prints[DEDUP_BATCH] = {0};
    int code = 0;

    /* Where little is known, each will be looked for, all over the index: the
     * memory of one is waited for while the next are hashed. */
    for (size_t i = 0;
         count > 1 && i < count && peer->sender.heat < HEAT_ENOUGH; i++) {
        if (is_segment(&pieces[i])) {
            prints[i].value = dedup_store_expect(peer->options.store,
                                                 pieces[i].data, pieces[i].len);
            prints[i].known = true;
        }
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        code = send_piece(peer, stream, &pieces[i], &prints[i]);
    }
    return code;
}

int wire_sender_all(struct poise_dedup_peer *peer, struct wire_stream *stream,
                    const struct poise_dedup_piece *pieces, size_t count)
{
    int code = 0;

    for (size_t i = 0; i < count && code == 0; i += DEDUP_BATCH) {
        size_t left = count - i;
        code = wire_sender_pieces(peer, stream, pieces + i,
                                  left < DEDUP_BATCH ? left : DEDUP_BATCH);
    }
    return code;
}

/* An open group with nothing held, into which a message of a stream goes. */
static int open_for(struct poise_dedup_peer *peer, struct wire_stream *stream,
                    size_t most)
{
    struct poise_buf *raw = &peer->blocks.raw;
    int code = open_group(peer);

    code = code < 0 ? code : settle(peer);
    code = code < 0 ? code : wire_blocks_room(&peer->blocks, most + 16);
    if (code < 0) {
        return code;
    }
    if (peer->sender.stream != stream->number) {
        poise_buf_putc(raw, WIRE_STREAM);
        poise_buf_varint(raw, stream->number);
        peer->sender.stream = stream->number;
    }
    return raw->error;
}

int wire_sender_update(struct poise_dedup_peer *peer,
                       struct wire_stream *stream,
                       const struct poise_buf *places, size_t bytes,
                       const struct poise_dedup_update *update)
{
    struct wire_sender *sender = &peer->sender;
    uint64_t at = stream->sent_at;
    int code = 0;

    if (sender->open && sender->open->data.len + bytes > WIRE_GROUP_BYTES) {
        code = wire_sender_close_group(peer);
    }
    code = code < 0 ? code : open_for(peer, stream, places->len);
    if (code == 0) {
        unsigned char number = (unsigned char)stream->number;
        poise_buf_putc(&peer->blocks.raw, WIRE_UPDATE);
        poise_buf_append(&peer->blocks.raw, places->data, places->len);
        /* It is proved with the group, too. */
        code = poise_dedup_hasher_update(peer->hasher, &number, 1);
    }
    if (code == 0) {
        code =
            poise_dedup_hasher_update(peer->hasher, places->data, places->len);
    }
    sender->is_update = true;
    if (code == 0) {
        code = wire_sender_all(peer, stream, update->pieces, update->count);
    }
    sender->is_update = false;
    stream->sent_at = at;
    code = code < 0 ? code : settle(peer);
    return code < 0 ? code : close_full(peer);
}

int wire_sender_end(struct poise_dedup_peer *peer, struct wire_stream *stream)
{
    uint32_t end, first;
    int code = open_for(peer, stream, 1);

    if (code < 0) {
        return code;
    }
    code = poise_buf_putc(&peer->blocks.raw, WIRE_END);
    stream->sent_at = 0;
    end = (uint32_t)peer->sender.open->data.len;
    first = count_of(&peer->sender.open->lens, sizeof(uint32_t));
    return code < 0 ? code : add_item(peer->sender.open, end, first);
}

/* ---- what comes back ---------------------------------------------------- */

static void learn(struct wire_sender *sender, const struct wire_sent *group)
{
    if (group->prints > 0 && group->prints_asked == group->prints) {
        sender->useless++;
    } else if (group->prints > 0) {
        sender->useless = 0;
        sender->direct_for = DIRECT;
    }
    if (sender->useless >= USELESS) {
        uint64_t twice = 2 * sender->direct_for;
        sender->direct_until = sender->numbers + sender->direct_for;
        sender->direct_for = twice < DIRECT_MOST ? twice : DIRECT_MOST;
        /* The next group of fingerprints decides alone. */
        sender->useless = USELESS - 1;
    }
    if (group->believes && !group->asked) {
        sender->backoff = BACKOFF;
    }
}

void wire_sender_settle(struct poise_dedup_peer *peer)
{
    struct wire_sender *sender = &peer->sender;

    if (sender->direct_for == 0) {
        sender->direct_for = DIRECT;
    }
    while (sender->oldest && sender->oldest->waits == 0) {
        struct wire_sent *group = sender->oldest;
        learn(sender, group);
        sender->in_flight -= group->weight;
        sender->oldest = group->next;
        sender->newest = group->next ? sender->newest : NULL;
        put_spare(sender, group);
    }
}

/* Whose groups the other end speaks of. */
static struct poise_dedup_peer *leader_of(struct poise_dedup_peer *peer)
{
    return peer->member.lead ? peer->member.lead : peer;
}

int wire_sender_ack(struct poise_dedup_peer *peer, struct poise_reader *message)
{
    struct poise_dedup_peer *lead = leader_of(peer);
    struct wire_sent *group = lead->sender.oldest;
    uint64_t count = poise_reader_varint(message);

    while (group && peer->member.lead && group->number < peer->member.acked) {
        group = group->next;
    }
    for (; count > 0 && message->error == 0; count--, group = group->next) {
        if (!group) {
            return wire_bad("it acknowledges what was not sent");
        }
        group->waits--;
        peer->member.acked = group->number + 1;
        peer->member.in_flight -= peer->member.lead ? group->weight : 0;
    }
    wire_sender_settle(lead);
    return 0;
}

static int supply(struct poise_dedup_peer *peer, const struct wire_sent *group,
                  uint32_t index)
{
    const struct wire_item *item =
        (const struct wire_item *)(const void *)group->items.data + index;
    const uint32_t *lens = (const uint32_t *)(const void *)group->lens.data;
    struct poise_buf *raw = &peer->blocks.raw;
    int code = wire_blocks_room(&peer->blocks,
                                item->len + 4 * (size_t)item->count + 32);

    if (code < 0) {
        return code;
    }
    poise_buf_putc(raw, WIRE_SUPPLY);
    poise_buf_varint(raw, group->number);
    poise_buf_varint(raw, index);
    poise_buf_varint(raw, item->count);
    for (uint32_t i = 0; i < item->count; i++) {
        poise_buf_varint(raw, lens[item->first + i]);
    }
    /* A group of ends only has no data at all. */
    return item->len > 0 ? poise_buf_append(
                               raw, group->data.data + item->offset, item->len)
                         : raw->error;
}

/* Something that was believed is not so. What went before that was known is no
 * reason to doubt again; as much as that was, at least, nothing is believed. */
static void doubt(struct wire_sender *sender, struct wire_sent *group)
{
    uint64_t late = sender->numbers - group->number, twice;

    if (group->asked || !group->believes) {
        return;
    }
    group->asked = true;
    if (group->number < sender->doubted) {
        return;
    }
    sender->doubted = sender->numbers;
    sender->backoff = sender->backoff > late ? sender->backoff : late;
    sender->backoff = sender->backoff > BACKOFF ? sender->backoff : BACKOFF;
    twice = 2 * sender->backoff;
    sender->distrust_until = sender->numbers + sender->backoff;
    sender->backoff = twice < BACKOFF_MOST ? twice : BACKOFF_MOST;
}

int wire_sender_request(struct poise_dedup_peer *peer,
                        struct poise_reader *message)
{
    struct poise_dedup_peer *lead = leader_of(peer);
    struct wire_sender *sender = &lead->sender;
    /* Each member may ask for as much as one that is alone. */
    int most = SUPPLIES * (lead->leads ? WIRE_MEMBERS_MOST : 1);
    uint64_t number = poise_reader_varint(message);
    uint64_t count = poise_reader_varint(message), index = 0;
    struct wire_sent *group = sender->oldest;
    uint32_t items;
    int code = 0;

    while (group && group->number != number) {
        group = group->next;
    }
    if (message->error || !group ||
        (peer->member.lead && number < peer->member.acked)) {
        return wire_bad("it asks for what was not sent");
    }
    items = count_of(&group->items, sizeof(struct wire_item));
    if (count > items) {
        return wire_bad("it asks for more than there is");
    }
    /* All of it, or those that are named by their distances. */
    peer->stats.repairs += count == 0;
    for (uint64_t i = 0; i < (count ? count : items) && code == 0; i++) {
        uint32_t by = count ? (uint32_t)poise_reader_varint(message) : 1;
        struct wire_item *item;
        index += by;
        if (message->error || by == 0 || index > items) {
            return wire_bad("it asks for what is not there");
        }
        item = (struct wire_item *)(void *)group->items.data + (index - 1);
        if (item->supplied++ == most) {
            return wire_bad("it asks for the same again and again");
        }
        if (count == 0 || !item->print) {
            doubt(sender, group);
        }
        group->prints_asked += item->print && item->supplied == 1;
        peer->stats.requests++;
        code = supply(peer, group, (uint32_t)(index - 1));
    }
    return code;
}
