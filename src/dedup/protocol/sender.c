/*
 * How each piece is sent. A segment goes in the cheapest way that is believed
 * to do: as one more of a run that lies in the receiver's cache in the same
 * order as in the own one, as a delta against what follows the run, by its
 * fingerprint, or as it is. A belief that turns out wrong costs a repair, and
 * is given up for some time (sender_repair.c).
 */
#include "sender.h"

#include <poise/store.h>

#include <errno.h>
#include <string.h>

enum {
    ANCHORS = 32, /* segments of which one says where a run is */
    NEAR = 32,    /* over so many two caches are taken to be alike */
};

/* ---- segments ----------------------------------------------------------- */

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

    /* A connection that broke off, or an index that does not find all, makes
     * them differ here and there: what is counted over a long way would be
     * wrong at each of these, in all that is sent from then on. */
    return sender->has_cursor && sender->anchored &&
           dedup_store_distance(peer->options.store, sender->cursor, at, NEAR,
                                out);
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
    int code = wire_write_held(peer);

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
    code = wire_group_add_item(group, WIRE_ITEM_OWN, (uint32_t)group->data.len,
                               wire_count(&group->lens, sizeof(uint32_t)));
    return code < 0 ? code : 1;
}

/* Make sure that the receiver knows where `at` is, or that the segment's own
 * fingerprint can name it: 1; 0 if there is no way. *near: how many segments on
 * from the cursor, *by, it is. */
static int approach(struct poise_dedup_peer *peer, uint64_t at, bool *near,
                    int64_t *by)
{
    uint64_t anchor = at;
    int code, on = 0;

    *near = distance(peer, at, by);
    if (*near || !wire_may_not_find(peer)) {
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

/* 1; 0 if there is no way to name the place to the receiver. */
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
        code = wire_write_held(peer);
        if (code < 0) {
            return code;
        }
    }
    if (sender->held != WIRE_HELD_RUN) {
        code = wire_hold(peer, WIRE_HELD_RUN);
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
    code = wire_group_add_bytes(sender->open, piece);
    return code < 0 ? code : 1;
}

static int send_print(struct poise_dedup_peer *peer,
                      const struct poise_dedup_piece *piece)
{
    struct wire_sender *sender = &peer->sender;
    struct wire_sent *group;
    uint32_t offset, first;
    int code = wire_hold(peer, WIRE_HELD_PRINTS);

    if (code < 0) {
        return code;
    }
    group = sender->open;
    offset = (uint32_t)group->data.len;
    first = wire_count(&group->lens, sizeof(uint32_t));
    sender->held_count++;
    group->prints++;
    peer->stats.by_fingerprint += piece->len;
    code = wire_group_add_bytes(group, piece);
    return code < 0
               ? code
               : wire_group_add_item(group, WIRE_ITEM_PRINT, offset, first);
}

static int send_missing(struct poise_dedup_peer *peer,
                        const struct poise_dedup_piece *piece)
{
    struct wire_sender *sender = &peer->sender;
    int code = 0;

    if (sender->held == WIRE_HELD_MISS &&
        sender->open->data.len - sender->held_offset + piece->len >
            WIRE_MISS_MOST) {
        code = wire_write_held(peer);
    }
    if (code == 0) {
        code = wire_hold(peer, WIRE_HELD_MISS);
    }
    /* An update is shown before all that lies in front of it is known. */
    wire_grid_of(sender->is_update ? NULL : piece->array,
                 &sender->residual.grid);
    return code < 0 ? code : wire_group_add_bytes(sender->open, piece);
}

/* Whether the receiver need not be asked. */
static bool is_surely_new(const struct poise_dedup_peer *peer, bool found)
{
    const struct wire_sender *sender = &peer->sender;

    /* Nor where it would be seen that it has to answer. */
    return peer->their_containers == 0 || peer->pad > 0 ||
           (sender->open->number < sender->direct_until &&
            (!found || sender->is_stranger)) ||
           (!found && sender->hit_rate >= HIT_RATE_ENOUGH &&
            sender->open->number >= sender->distrust_until);
}

int wire_sender_mark(struct poise_dedup_store *store,
                     const struct poise_dedup_key *key, bool *is_new)
{
    static const char head[] = "poise has sent to the cache with the key ";
    enum { HEAD = sizeof head - 1, TRIES = 1 << 15, RANK_BELOW = 1 << 6 };
    unsigned char mark[HEAD + POISE_DEDUP_KEY_BYTES + 4];
    unsigned char digest[POISE_DEDUP_DIGEST_BYTES];
    uint64_t at;
    int code;

    memcpy(mark, head, HEAD);
    memcpy(mark + HEAD, key->bytes, sizeof key->bytes);
    for (uint32_t i = 0; i < TRIES; i++) {
        poise_put_u32(mark + HEAD + sizeof key->bytes, i);
        poise_dedup_digest(mark, sizeof mark, digest);
        if (dedup_rank(digest) < RANK_BELOW) {
            break;
        }
    }
    code = dedup_store_add(store, dedup_store_expect(store, mark, sizeof mark),
                           mark, sizeof mark, 0, &at);
    *is_new |= code == 1;
    return code == -ENOMEM ? code : 0;
}

/* Before the first segment goes. What a cache holds that got nothing from this
 * one, and in which order, this end cannot know: it is asked for each segment,
 * and gets what it lacks in an order that both ends know from now on. */
static int recognise(struct poise_dedup_peer *peer)
{
    struct wire_sender *sender = &peer->sender;
    struct poise_dedup_store *store = peer->options.store;
    bool is_new = peer->their_containers == 0;
    int code =
        peer->is_leader ? 0 : wire_sender_mark(store, &peer->key, &is_new);

    for (size_t i = 0; i < peer->member_count && code == 0; i++) {
        code = wire_sender_mark(store, &peer->members[i]->key, &is_new);
    }
    sender->is_stranger = is_new;
    sender->has_recognised = true;
    return code;
}

/* What this end knows of a segment at the receiver. */
struct knowledge {
    bool is_ours;    /* this group brings it: it is not there before that is
                        proved */
    bool is_brought; /* this connection did, even if the cache was empty */
    bool may_be_theirs;
};

static struct knowledge know(const struct wire_sender *sender, bool found,
                             uint64_t at)
{
    struct knowledge known = {.is_ours = found && sender->has_added &&
                                         at >= sender->added};

    known.is_brought =
        found && !known.is_ours && sender->has_brought && at >= sender->brought;
    known.may_be_theirs =
        known.is_brought || (found && !known.is_ours && !sender->is_stranger);
    return known;
}

static bool is_trusted(const struct wire_sender *sender,
                       const struct knowledge *known)
{
    return known->may_be_theirs &&
           sender->open->number >= (known->is_brought
                                        ? sender->distrust_all_until
                                        : sender->distrust_until);
}

/* In another way than by a reference. */
static int send_new(struct poise_dedup_peer *peer,
                    const struct poise_dedup_piece *piece,
                    struct own_print *print, const struct knowledge *known,
                    bool found, uint64_t at)
{
    struct poise_dedup_store *store = peer->options.store;
    bool is_full = dedup_store_is_sampled(store);
    /* Found only because its container is in memory: the receiver's may not
     * be. */
    bool as_data =
        known->is_ours || (!known->is_brought && is_surely_new(peer, found)) ||
        (found && is_full &&
         !dedup_store_names(store, own_print(peer, piece, print), at));

    if (!known->is_ours || is_full) {
        int code = wire_sender_keep(peer, own_print(peer, piece, print),
                                    piece->data, piece->len);
        if (code < 0) {
            return code;
        }
    }
    return as_data ? send_missing(peer, piece) : send_print(peer, piece);
}

static int send_segment(struct poise_dedup_peer *peer,
                        const struct poise_dedup_piece *piece,
                        struct own_print *print)
{
    struct wire_sender *sender = &peer->sender;
    struct knowledge known;
    uint64_t at = 0;
    int code = sender->has_recognised ? 0 : recognise(peer);
    int found = code < 0 ? code : look_up(peer, piece, print, &at);

    if (found < 0) {
        return found;
    }
    known = know(sender, found, at);
    sender->hit_rate -= sender->hit_rate / HIT_RATE_SHARE;
    sender->hit_rate +=
        known.may_be_theirs ? HIT_RATE_FULL / HIT_RATE_SHARE : 0;
    code = is_trusted(sender, &known) ? send_run(peer, piece, at) : 0;
    return code != 0 ? (code < 0 ? code : 0)
                     : send_new(peer, piece, print, &known, found, at);
}

/* ---- other pieces ------------------------------------------------------- */

static int send_plain(struct poise_dedup_peer *peer,
                      const struct poise_dedup_piece *piece)
{
    struct wire_sent *group = peer->sender.open;
    struct poise_buf *raw = &peer->blocks.raw;
    uint32_t offset = (uint32_t)group->data.len;
    uint32_t first = wire_count(&group->lens, sizeof(uint32_t));
    int code = wire_write_held(peer);

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
    code = wire_group_add_bytes(group, piece);
    return code < 0 ? code
                    : wire_group_add_item(group, WIRE_ITEM_OWN, offset, first);
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
    code = wire_write_held(peer);
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
    int code = wire_group_open(peer);

    if (code == 0) {
        code = put_place(peer, stream, piece, &placed);
    }
    if (code == 0) {
        code = is_segment(piece) ? send_segment(peer, piece, print)
                                 : send_plain(peer, piece);
    }
    if (code == 0 && placed) {
        /* A place is that of one segment. */
        code = wire_write_held(peer);
    }
    if (code < 0) {
        return code;
    }
    stream->sent_at = piece->place.x + piece->len;
    peer->stats.data_out += piece->len;
    return wire_group_close_full(peer);
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
         count > 1 && i < count && peer->sender.hit_rate < HIT_RATE_ENOUGH;
         i++) {
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
    int code = wire_group_open(peer);

    code = code < 0 ? code : wire_write_held(peer);
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
    code = code < 0 ? code : wire_write_held(peer);
    return code < 0 ? code : wire_group_close_full(peer);
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
    first = wire_count(&peer->sender.open->lens, sizeof(uint32_t));
    return code < 0 ? code
                    : wire_group_add_item(peer->sender.open, WIRE_ITEM_OWN, end,
                                          first);
}
