/*
 * Unordered updates: delivered before their turn, and before they are proved.
 *
 * The places of an update's pieces come before the pieces, so that neither
 * earlier updates nor the pieces themselves are needed to know where each
 * belongs and how long it is. What fingerprints and data bring is delivered
 * from the group's items. A reference means what the cache will have when all
 * groups before are delivered; what it has now is a guess, which is kept beside
 * the item (`guess`) and compared with the truth when the group is proved.
 *
 * Invariants:
 * - An update is delivered as GUESSED or PROVED exactly once: is_shown is set
 *   with the first, and only an update without it is delivered as PROVED.
 * - What was delivered of an item is kept until its group is proved: in `guess`
 *   where it was one, in `data` where the item was done, and received_replace
 *   moves it from there to `guess` before a supply overwrites it. So a
 *   correction holds exactly the pieces that differ from what was delivered.
 * - Corrections come in the order of the updates: groups are proved in order.
 * - An update waits for the pieces in order that were sent before it (`after`),
 *   and for nothing else.
 * - Guesses are bounded by WIRE_GUESS_MOST over all groups; what is beyond that
 *   is delivered when it is known.
 */
#include "received.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t place_bytes(const struct poise_dedup_place *place,
                            uint32_t element_bytes)
{
    uint64_t area = (uint64_t)place->width * place->height;

    /* None of them may be so large that the product is small again. */
    return area > POISE_DEDUP_SEGMENT_MOST ||
                   element_bytes > POISE_DEDUP_SEGMENT_MOST
               ? 0
               : area * element_bytes;
}

/* ---- sending ------------------------------------------------------------ */

int wire_unordered_asked(struct poise_dedup_peer *peer,
                         struct poise_reader *message)
{
    uint64_t number = poise_reader_varint(message);
    struct wire_stream *stream;

    if (message->error || number >= POISE_DEDUP_STREAMS) {
        return wire_bad("no such stream");
    }
    stream = wire_stream_of(peer, (uint32_t)number);
    if (!stream) {
        return -ENOMEM;
    }
    stream->is_unordered = true;
    return 0;
}

int wire_update_check(const struct poise_dedup_update *update)
{
    uint32_t element_bytes = update->element_bytes ? update->element_bytes : 1;
    uint64_t bytes = 0;

    if (update->count == 0 || update->count > POISE_DEDUP_UPDATE_PIECES) {
        return poise_error_set(EINVAL, "send an update", NULL, "%zu pieces",
                               update->count);
    }
    for (size_t i = 0; i < update->count; i++) {
        const struct poise_dedup_piece *piece = &update->pieces[i];
        bytes += piece->len;
        if (piece->len == 0 || piece->len > POISE_DEDUP_SEGMENT_MOST ||
            piece->len != place_bytes(&piece->place, element_bytes) ||
            (piece->kind == POISE_DEDUP_FILL &&
             (piece->period == 0 || piece->period > piece->len))) {
            return poise_error_set(EINVAL, "send an update", NULL,
                                   "piece %zu has %zu bytes", i, piece->len);
        }
    }
    return bytes <= POISE_DEDUP_UPDATE_BYTES
               ? 0
               : poise_error_set(EINVAL, "send an update", NULL,
                                 "%llu bytes are too many",
                                 (unsigned long long)bytes);
}

int wire_update_send(struct poise_dedup_peer *peer, struct wire_stream *stream,
                     const struct poise_dedup_update *update)
{
    struct poise_buf places = {0};
    struct poise_dedup_place last = {0};
    uint64_t sequence = stream->sent - 1;
    size_t bytes = 0;
    int code;

    poise_buf_varint(&places, sequence - stream->announced);
    poise_buf_varint(&places,
                     update->element_bytes ? update->element_bytes : 1);
    poise_buf_varint(&places, update->count);
    for (size_t i = 0; i < update->count; i++) {
        const struct poise_dedup_place *place = &update->pieces[i].place;
        poise_buf_varint(
            &places, wire_zigzag((int64_t)(place->x - last.x - last.width)));
        poise_buf_varint(&places,
                         wire_zigzag((int64_t)place->y - (int64_t)last.y));
        poise_buf_varint(&places, place->width);
        poise_buf_varint(&places, place->height);
        last = *place;
        bytes += update->pieces[i].len;
    }
    stream->announced = sequence + 1;
    code = places.error;
    if (code == 0) {
        code = wire_sender_update(peer, stream, &places, bytes, update);
    }
    poise_buf_free(&places);
    return code;
}

/* ---- taking updates in -------------------------------------------------- */

void received_updates_free(struct wire_received *group)
{
    for (uint32_t i = 0; i < group->update_count; i++) {
        poise_buf_free(&group->updates[i].places);
        poise_buf_free(&group->updates[i].header);
    }
    free(group->updates);
}

static int take_places(struct poise_reader *message, uint64_t count,
                       struct received_update *update)
{
    struct poise_dedup_place place = {0};
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t y, width, height, len;
        place.x +=
            place.width + (uint64_t)wire_unzigzag(poise_reader_varint(message));
        y = place.y + (uint64_t)wire_unzigzag(poise_reader_varint(message));
        width = poise_reader_varint(message);
        height = poise_reader_varint(message);
        if (message->error || (y | width | height) > UINT32_MAX) {
            return wire_bad("an update of senseless shape");
        }
        place.y = (uint32_t)y;
        place.width = (uint32_t)width;
        place.height = (uint32_t)height;
        len = place_bytes(&place, update->element_bytes);
        bytes += len;
        if (len == 0 || len > POISE_DEDUP_SEGMENT_MOST ||
            bytes > POISE_DEDUP_UPDATE_BYTES) {
            return wire_bad("an update of senseless shape");
        }
        if (poise_buf_append(&update->places, &place, sizeof place) < 0) {
            return -ENOMEM;
        }
    }
    return 0;
}

static uint32_t places_of(const struct received_update *update)
{
    return (uint32_t)(update->places.len / sizeof(struct poise_dedup_place));
}

/* The i-th place, and the bytes that belong there. */
static uint32_t place_at(const struct received_update *update, uint32_t i,
                         struct poise_dedup_place *out)
{
    *out = ((const struct poise_dedup_place *)(const void *)
                update->places.data)[i];
    return (uint32_t)place_bytes(out, update->element_bytes);
}

static struct received_update *add_update(struct wire_received *group)
{
    if (group->update_count == group->update_cap) {
        uint32_t cap = group->update_cap ? 2 * group->update_cap : 4;
        struct received_update *grown =
            poise_realloc(group->updates, cap, sizeof *grown);
        if (!grown) {
            return NULL;
        }
        group->updates = grown;
        group->update_cap = cap;
    }
    group->updates[group->update_count] = (struct received_update){0};
    return &group->updates[group->update_count++];
}

int received_update_begin(struct poise_dedup_peer *peer,
                          struct poise_reader *message)
{
    struct wire_received *group = peer->receiver.open;
    struct wire_stream *stream = wire_stream_of(peer, group->stream);
    const unsigned char *from = message->pos;
    uint64_t by = poise_reader_varint(message);
    uint64_t element_bytes = poise_reader_varint(message);
    uint64_t count = poise_reader_varint(message);
    struct received_update *update;
    int code;

    if (!stream) {
        return -ENOMEM;
    }
    if (!stream->asked) {
        return wire_bad("it sends updates that nobody asked for");
    }
    if (message->error || element_bytes == 0 ||
        element_bytes > POISE_DEDUP_SEGMENT_MOST || count == 0 ||
        count > POISE_DEDUP_UPDATE_PIECES || group->placed ||
        by >= UINT64_MAX - stream->expected) {
        return wire_bad("an update of senseless shape");
    }
    update = add_update(group);
    if (!update) {
        return -ENOMEM;
    }
    update->stream = stream->number;
    update->element_bytes = (uint32_t)element_bytes;
    update->sequence = stream->expected + by;
    update->first = update->end = group->count;
    update->after = stream->ordered;
    stream->expected = update->sequence + 1;
    group->left = (uint32_t)count;
    code = take_places(message, count, update);
    poise_buf_putc(&update->header, (char)stream->number);
    poise_buf_append(&update->header, from, (size_t)(message->pos - from));
    code = code < 0 ? code : update->header.error;
    return code < 0 ? code
                    : received_charge(&peer->receiver, group,
                                      sizeof *update + update->places.len +
                                          update->header.len);
}

int received_update_count(struct poise_dedup_peer *peer,
                          struct received_item *item)
{
    struct wire_received *group = peer->receiver.open;
    struct wire_stream *stream = wire_stream_of(peer, item->stream);
    struct received_update *update;
    size_t pieces = item->lens.len / sizeof(uint32_t);

    if (!stream) {
        return -ENOMEM;
    }
    if (item->op == WIRE_FINGERPRINTS || item->op == WIRE_RUN ||
        item->op == WIRE_NEXT) {
        pieces = item->count;
    }
    if (group->left == 0) {
        stream->ordered = pieces > 0 || item->op == WIRE_END ? group->number + 1
                                                             : stream->ordered;
        return 0;
    }
    if (pieces > group->left) {
        return wire_bad("an update has too many pieces");
    }
    update = &group->updates[group->update_count - 1];
    update->end = group->count;
    item->update = group->update_count;
    item->at = places_of(update) - group->left;
    item->pieces = (uint32_t)pieces;
    group->left -= item->pieces;
    return 0;
}

/* ---- guessing ----------------------------------------------------------- */

static bool is_reference(const struct received_item *item)
{
    return item->op == WIRE_RUN || item->op == WIRE_NEXT ||
           item->op == WIRE_DELTA;
}

/* Whether an item's segments are as many and as long as its places say. */
static bool fits(const struct received_update *update,
                 const struct received_item *item, const struct poise_buf *lens)
{
    const uint32_t *len = (const uint32_t *)(const void *)lens->data;
    struct poise_dedup_place place;

    if (lens->len != item->pieces * sizeof *len) {
        return false;
    }
    for (uint32_t i = 0; i < item->pieces; i++) {
        if (len[i] != place_at(update, item->at + i, &place)) {
            return false;
        }
    }
    return true;
}

/* What a reference stands for now; the item itself stays as it is. */
static int guess(struct poise_dedup_peer *peer, struct wire_received *group,
                 struct received_item *item, struct received_cursor *cursor)
{
    struct received_item copy = {
        .op = item->op,
        .count = item->count,
        .print = item->print,
        .skip = item->skip,
    };
    int code = 0;

    if (item->op == WIRE_DELTA &&
        (poise_buf_append(&copy.data, item->data.data, item->data.len) < 0 ||
         poise_buf_append(&copy.lens, item->lens.data, item->lens.len) < 0)) {
        code = -ENOMEM;
    }
    code = code < 0 ? code : received_resolve(peer, &copy, cursor);
    if (code == 1 &&
        fits(&group->updates[item->update - 1], item, &copy.lens)) {
        item->guess = copy.data;
        copy.data = (struct poise_buf){0};
        group->guessed += item->guess.len;
        peer->receiver.guessed += item->guess.len;
    }
    poise_buf_free(&copy.data);
    poise_buf_free(&copy.lens);
    return code < 0 ? code : 0;
}

/* Guess what all references in a group's hidden updates are. */
static int guess_group(struct poise_dedup_peer *peer,
                       struct wire_received *group)
{
    struct wire_receiver *receiver = &peer->receiver;
    struct received_cursor cursor = {0};
    int code = 0;

    for (uint32_t i = 0; i < group->count && code == 0; i++) {
        struct received_item *item = &group->items[i];
        if (!is_reference(item)) {
            continue;
        }
        if (item->state == ITEM_OPEN && item->pieces > 0 &&
            !group->updates[item->update - 1].is_shown &&
            item->guess.len == 0 && receiver->guessed < WIRE_GUESS_MOST) {
            code = guess(peer, group, item, &cursor);
        } else {
            code = received_follow(peer, item, &cursor);
        }
    }
    return code;
}

/* ---- delivering --------------------------------------------------------- */

/* The pieces of an update, from what its items are, or else from what they
 * seem to be: 1; 0 if something is missing, or not as long as its place. */
static int collect(struct poise_dedup_peer *peer,
                   const struct wire_received *group,
                   const struct received_update *update)
{
    struct poise_buf *out = &peer->receiver.pieces;

    poise_buf_reset(out);
    for (uint32_t i = update->first; i < update->end; i++) {
        const struct received_item *item = &group->items[i];
        bool is_done = item->state == ITEM_DONE;
        struct poise_dedup_piece piece = {.kind = received_kind(item),
                                          .period = item->period};
        if (item->pieces > 0 && (is_done ? !fits(update, item, &item->lens)
                                         : item->guess.len == 0)) {
            return 0;
        }
        piece.data =
            (const void *)(is_done ? item->data.data : item->guess.data);
        for (uint32_t k = 0; k < item->pieces; k++) {
            piece.len = place_at(update, item->at + k, &piece.place);
            if (poise_buf_append(out, &piece, sizeof piece) < 0) {
                return -ENOMEM;
            }
            piece.data += piece.len;
        }
    }
    return 1;
}

static int deliver(struct poise_dedup_peer *peer,
                   const struct received_update *update,
                   enum poise_dedup_standing standing)
{
    const struct poise_buf *pieces = &peer->receiver.pieces;
    struct wire_stream *stream = peer->streams[update->stream];
    struct poise_dedup_update out = {
        .pieces = (const void *)pieces->data,
        .count = pieces->len / sizeof(struct poise_dedup_piece),
        .element_bytes = update->element_bytes,
        .sequence = update->sequence,
        .standing = standing,
    };

    if (update->sequence < stream->superseded) {
        peer->stats.superseded++;
        return 0;
    }
    peer->stats.guessed += standing == POISE_DEDUP_GUESSED;
    peer->stats.corrected += standing == POISE_DEDUP_CORRECTED;
    if (standing != POISE_DEDUP_CORRECTED) {
        peer->stats.late += update->sequence < stream->shown;
        stream->shown = update->sequence + 1 > stream->shown
                            ? update->sequence + 1
                            : stream->shown;
    }
    return peer->options.update(update->stream, &out, peer->options.arg);
}

static bool is_ripe(const struct poise_dedup_peer *peer,
                    const struct received_update *update)
{
    return !update->is_shown && update->after <= peer->receiver.finished;
}

/* From now on a guess is what was delivered. */
static void mark_shown(struct poise_dedup_peer *peer,
                       struct wire_received *group,
                       struct received_update *update)
{
    for (uint32_t i = update->first; i < update->end; i++) {
        struct received_item *item = &group->items[i];
        if (item->state == ITEM_DONE) {
            group->guessed -= item->guess.len;
            peer->receiver.guessed -= item->guess.len;
            poise_buf_free(&item->guess);
        }
    }
    update->is_shown = true;
    group->hidden--;
    peer->receiver.hidden--;
}

int received_update_show(struct poise_dedup_peer *peer,
                         struct wire_received *group)
{
    uint64_t now = peer->receiver.finished + 1;
    int err = 0;

    if (!group->stirred && group->guessed_at == now) {
        return 0; /* there is nothing new */
    }
    if (group->guessed_at != now) {
        err = guess_group(peer, group);
    }
    group->stirred = false;
    group->guessed_at = now;
    for (uint32_t i = 0; i < group->update_count && err == 0; i++) {
        struct received_update *update = &group->updates[i];
        int code = is_ripe(peer, update) ? collect(peer, group, update) : 0;
        if (code == 1) {
            mark_shown(peer, group, update);
            code = deliver(peer, update, POISE_DEDUP_GUESSED);
        }
        err = code < 0 ? code : 0;
    }
    return err;
}

/* Of the pieces that are right, those that were shown otherwise. */
static void keep_wrong(struct poise_dedup_peer *peer,
                       const struct wire_received *group,
                       const struct received_update *update)
{
    struct poise_buf *out = &peer->receiver.pieces;
    struct poise_dedup_piece *pieces = (void *)out->data;
    size_t at = 0, wrong = 0;

    for (uint32_t i = update->first; i < update->end; i++) {
        const struct received_item *item = &group->items[i];
        const char *shown = item->guess.data;
        if (item->guess.len == 0) {
            at += item->pieces; /* shown as they are */
            continue;
        }
        for (uint32_t k = 0; k < item->pieces; k++, at++) {
            size_t len = pieces[at].len;
            if (memcmp(shown, pieces[at].data, len) != 0) {
                pieces[wrong++] = pieces[at];
            }
            shown += len;
        }
    }
    out->len = wrong * sizeof *pieces;
}

int received_update_settle(struct poise_dedup_peer *peer,
                           struct wire_received *group,
                           struct received_update *update)
{
    struct wire_stream *stream = peer->streams[update->stream];
    int code = collect(peer, group, update);

    if (code <= 0) {
        return code < 0 ? code : wire_bad("an update is not what it says");
    }
    stream->final = update->sequence + 1;
    if (!update->is_shown) {
        group->hidden--;
        peer->receiver.hidden--;
        return deliver(peer, update, POISE_DEDUP_PROVED);
    }
    keep_wrong(peer, group, update);
    return peer->receiver.pieces.len > 0
               ? deliver(peer, update, POISE_DEDUP_CORRECTED)
               : 0;
}

/* ---- what users ask for ------------------------------------------------- */

int poise_dedup_peer_allow_unordered(struct poise_dedup_peer *peer,
                                     uint32_t number)
{
    struct poise_buf *raw = &peer->blocks.raw;
    struct wire_stream *stream;

    if (peer->error < 0) {
        return peer->error;
    }
    if (number >= POISE_DEDUP_STREAMS || peer->is_leader ||
        !peer->options.update) {
        return poise_error_set(EINVAL, "ask for updates", NULL,
                               "nothing comes on stream %u", number);
    }
    if (!peer->met || !peer->knows_updates) {
        return poise_error_set(
            peer->met ? EOPNOTSUPP : EAGAIN, "ask for updates", NULL,
            peer->met ? "the other end knows none"
                      : "the other end has not sent its hello yet");
    }
    stream = wire_stream_of(peer, number);
    if (!stream) {
        return -ENOMEM;
    }
    if (stream->asked) {
        return 0;
    }
    peer->error = wire_blocks_room(&peer->blocks, 16);
    if (peer->error == 0) {
        stream->asked = true;
        poise_buf_putc(raw, WIRE_UNORDERED);
        peer->error = poise_buf_varint(raw, number);
    }
    if (peer->error == 0) {
        peer->error = wire_blocks_close(&peer->blocks);
    }
    if (peer->error == 0) {
        peer->error = wire_blocks_collect(&peer->blocks, true);
    }
    return peer->error;
}

int poise_dedup_peer_supersede(struct poise_dedup_peer *peer, uint32_t number,
                               uint64_t below)
{
    struct wire_stream *stream =
        number < POISE_DEDUP_STREAMS ? peer->streams[number] : NULL;

    if (!stream || !stream->asked) {
        return poise_error_set(EINVAL, "give updates up", NULL,
                               "stream %u has none", number);
    }
    if (stream->superseded < below) {
        stream->superseded = below;
    }
    return 0;
}

uint64_t poise_dedup_peer_final(const struct poise_dedup_peer *peer,
                                uint32_t number)
{
    const struct wire_stream *stream =
        number < POISE_DEDUP_STREAMS ? peer->streams[number] : NULL;

    return stream ? stream->final : 0;
}
