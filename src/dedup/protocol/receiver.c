/*
 * From groups of items to pieces. What an item stands for is looked up when
 * its group is complete; what is not there is asked for (receiver_repair.c), at
 * once if a fingerprint names it, else when all groups before have been
 * delivered: until then they may still bring it. Nothing is delivered before
 * the hash over its group has proved it.
 */
#include "received.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void received_free(struct wire_received *group)
{
    for (uint32_t i = 0; group && i < group->count; i++) {
        poise_buf_free(&group->items[i].data);
        poise_buf_free(&group->items[i].lens);
        poise_buf_free(&group->items[i].guess);
    }
    if (group) {
        received_updates_free(group);
        free(group->items);
        free(group);
    }
}

void wire_receiver_free(struct wire_receiver *receiver)
{
    while (receiver->oldest) {
        struct wire_received *next = receiver->oldest->next;
        received_free(receiver->oldest);
        receiver->oldest = next;
    }
    received_free(receiver->open);
    poise_buf_free(&receiver->scratch);
    poise_buf_free(&receiver->pieces);
}

/* ---- taking items in ---------------------------------------------------- */

int received_charge(struct wire_receiver *receiver, struct wire_received *group,
                    uint64_t bytes)
{
    group->bytes += bytes;
    receiver->bytes += bytes;
    return receiver->bytes > WIRE_PENDING_MOST ||
                   group->bytes > 4 * WIRE_GROUP_MOST
               ? wire_bad("it sends more than it may")
               : 0;
}

static struct received_item *add_item(struct wire_receiver *receiver,
                                      enum wire_op op, int *err)
{
    struct wire_received *group = receiver->open;
    struct received_item *item;

    *err =
        group->count == WIRE_ITEMS_MOST ? wire_bad("a group is too long") : 0;
    if (*err < 0) {
        return NULL;
    }
    if (group->count == group->cap) {
        uint32_t cap = group->cap ? 2 * group->cap : 32;
        struct received_item *grown =
            poise_realloc(group->items, cap, sizeof *grown);
        if (!grown) {
            *err = -ENOMEM;
            return NULL;
        }
        group->items = grown;
        group->cap = cap;
    }
    item = &group->items[group->count++];
    *item = (struct received_item){.op = op, .stream = group->stream};
    item->placed = group->placed;
    item->place = group->place;
    group->placed = false;
    *err = received_charge(receiver, group, sizeof *item);
    return *err < 0 ? NULL : item;
}

static int take_fill(struct received_item *item, struct poise_reader *message)
{
    uint64_t len = poise_reader_varint(message);
    uint64_t period = poise_reader_varint(message);
    int code;

    if (message->error || len == 0 || len > POISE_DEDUP_SEGMENT_MOST ||
        period == 0 || period > len) {
        return wire_bad("a fill of senseless length");
    }
    code = received_take_bytes(message, period, &item->data);
    if (code < 0 || !poise_buf_reserve(&item->data, len)) {
        return code < 0 ? code : -ENOMEM;
    }
    for (; item->data.len < len; item->data.len++) {
        item->data.data[item->data.len] =
            item->data.data[item->data.len - period];
    }
    item->period = (uint32_t)period;
    item->state = ITEM_DONE;
    return received_len(item, len);
}

/* The steps of a delta, which end where their bytes do. */
static int take_delta(struct received_item *item, struct poise_reader *message)
{
    struct poise_reader steps;
    size_t sum;
    uint64_t count, own = 0;
    int code;

    item->count = (uint32_t)poise_reader_varint(message);
    code = received_take_lens(message, &item->lens, &sum);
    if (code < 0) {
        return code;
    }
    steps = *message;
    count = poise_reader_varint(message);
    for (uint64_t i = 0; i < count && own <= sum; i++) {
        own += poise_reader_varint(message) + poise_reader_varint(message);
        poise_reader_varint(message);
        if (message->error) {
            return wire_bad("a message is cut short");
        }
    }
    if (own > sum || item->count == 0) {
        return wire_bad("a delta of senseless length");
    }
    /* Whatever is not copied follows. */
    struct poise_reader again = steps;
    uint64_t copied = 0;
    count = poise_reader_varint(&again);
    for (uint64_t i = 0; i < count; i++) {
        poise_reader_varint(&again);
        copied += poise_reader_varint(&again);
        poise_reader_varint(&again);
    }
    if (!wire_get_bytes(message, sum - copied)) {
        return wire_bad("a message is cut short");
    }
    return poise_buf_append(&item->data, steps.pos,
                            (size_t)(message->pos - steps.pos));
}

/* What it stands for is known when all before it in the group is. */
static int take_residual(struct poise_dedup_peer *peer,
                         struct received_item *item,
                         struct poise_reader *message)
{
    struct wire_grid grid;
    unsigned mode;
    size_t sum, len;
    int code = received_take_lens(message, &item->lens, &sum);
    const unsigned char *body = message->pos;

    code = code < 0 ? code : wire_residual_read(message, &grid, &mode, &len);
    if (code == 0 && !wire_get_bytes(message, len)) {
        code = wire_bad("a message is cut short");
    }
    if (code == 0) {
        code =
            poise_buf_append(&item->data, body, (size_t)(message->pos - body));
    }
    item->state = ITEM_DONE;
    item->is_residual = true;
    return code < 0
               ? code
               : received_charge(&peer->receiver, peer->receiver.open, sum);
}

static int take_item(struct poise_dedup_peer *peer, struct received_item *item,
                     uint32_t bits, struct poise_reader *message)
{
    struct wire_received *group = peer->receiver.open;
    size_t sum;
    int code = 0;

    switch (item->op) {
    case WIRE_RUN:
        item->print = wire_take_print(peer, message, bits);
        item->count = (uint32_t)poise_reader_varint(message);
        if (item->count == 0) {
            /* It only says where the next item starts from. */
            group->placed = item->placed;
            item->placed = false;
        }
        break;
    case WIRE_NEXT:
        item->skip = wire_unzigzag(poise_reader_varint(message));
        item->count = (uint32_t)poise_reader_varint(message);
        break;
    case WIRE_DATA:
        code = received_take_lens(message, &item->lens, &sum);
        code = code < 0 ? code : received_take_bytes(message, sum, &item->data);
        item->state = ITEM_DONE;
        break;
    case WIRE_LITERAL:
        sum = poise_reader_varint(message);
        if (message->error || sum == 0 || sum > POISE_DEDUP_SEGMENT_MOST) {
            return wire_bad("a literal of senseless length");
        }
        code = received_take_bytes(message, sum, &item->data);
        code = code < 0 ? code : received_len(item, sum);
        item->state = ITEM_DONE;
        break;
    case WIRE_FILL:
        return take_fill(item, message);
    case WIRE_DELTA:
        return take_delta(item, message);
    case WIRE_RESIDUAL:
        return take_residual(peer, item, message);
    default: /* WIRE_END */
        item->state = ITEM_DONE;
        break;
    }
    return code;
}

static int take_prints(struct poise_dedup_peer *peer, uint32_t bits,
                       struct poise_reader *message)
{
    uint64_t count = poise_reader_varint(message);
    int code = 0;

    for (uint64_t i = 0; i < count && code == 0; i++) {
        struct received_item *item =
            add_item(&peer->receiver, WIRE_FINGERPRINTS, &code);
        if (item) {
            item->print = wire_take_print(peer, message, bits);
            item->count = 1;
            code = message->error ? wire_bad("a message is cut short")
                                  : received_update_count(peer, item);
        }
    }
    return code;
}

static int take_place(struct wire_received *group, struct poise_reader *message)
{
    group->place.x = (uint64_t)wire_unzigzag(poise_reader_varint(message));
    group->place.y = (uint32_t)poise_reader_varint(message);
    group->place.width = (uint32_t)poise_reader_varint(message);
    group->place.height = (uint32_t)poise_reader_varint(message);
    group->placed = true;
    return 0;
}

/* The group is whole: from now on it can be worked at. */
static int end_group(struct poise_dedup_peer *peer,
                     struct poise_reader *message)
{
    struct wire_receiver *receiver = &peer->receiver;
    struct wire_received *group = receiver->open;
    const unsigned char *hash =
        wire_get_bytes(message, POISE_DEDUP_GROUP_BYTES);

    if (!hash || ++receiver->count > WIRE_GROUPS_MOST) {
        return wire_bad("groups of senseless length");
    }
    group->hidden = group->update_count;
    receiver->hidden += group->hidden;
    memcpy(group->hash, hash, sizeof group->hash);
    receiver->open = NULL;
    *(receiver->newest ? &receiver->newest->next : &receiver->oldest) = group;
    receiver->newest = group;
    return 0;
}

int wire_receiver_item(struct poise_dedup_peer *peer, enum wire_op op,
                       struct poise_reader *message)
{
    struct wire_receiver *receiver = &peer->receiver;
    uint32_t bits = poise_dedup_store_info(peer->options.store).bits;
    struct received_item *item;
    uint64_t number, before;
    int code;

    if (!receiver->open) {
        receiver->open = poise_alloc(1, sizeof *receiver->open);
        if (!receiver->open) {
            return -ENOMEM;
        }
        receiver->open->number = receiver->numbers++;
    }
    if (receiver->open->left > 0 &&
        (op < WIRE_FINGERPRINTS || op > WIRE_DELTA)) {
        return wire_bad("an update is cut short");
    }
    switch (op) {
    case WIRE_GROUP:
        return end_group(peer, message);
    case WIRE_UPDATE:
        return received_update_begin(peer, message);
    case WIRE_PLACE:
        return take_place(receiver->open, message);
    case WIRE_FINGERPRINTS:
        return take_prints(peer, bits, message);
    case WIRE_STREAM:
        number = poise_reader_varint(message);
        receiver->open->stream = (uint32_t)number;
        return number < POISE_DEDUP_STREAMS ? 0 : wire_bad("no such stream");
    default:
        break;
    }
    item = add_item(receiver, op, &code);
    if (!item) {
        return code;
    }
    before = poise_reader_left(message);
    code = take_item(peer, item, bits, message);
    if (code == 0) {
        code = received_update_count(peer, item);
    }
    before -= poise_reader_left(message);
    return code < 0 ? code
                    : received_charge(receiver, receiver->open,
                                      before + item->data.len + item->lens.len);
}

/* ---- what they stand for ------------------------------------------------ */

/* Of a run, some of which was found, or what lies in front of it, the rest may
 * be elsewhere in the cache; and so may others, unless that was asked in vain
 * of late. */
static enum item_state not_found(struct poise_dedup_peer *peer,
                                 const struct received_item *item,
                                 const struct received_cursor *cursor)
{
    struct wire_receiver *receiver = &peer->receiver;

    if (!peer->knows_items || item->count == 0 ||
        (item->op != WIRE_RUN && item->op != WIRE_NEXT)) {
        return ITEM_MISSING;
    }
    if (cursor->has_led || receiver->vain_left == 0) {
        return ITEM_MOVED;
    }
    receiver->vain_left--;
    return ITEM_MISSING;
}

/* References are looked up when the group is the oldest; fingerprints at
 * once. */
static int look_up_group(struct poise_dedup_peer *peer,
                         struct wire_received *group, bool is_oldest)
{
    struct received_cursor cursor = {0};

    for (uint32_t i = 0; i < group->count; i++) {
        struct received_item *item = &group->items[i];
        uint64_t before = item->data.len + item->lens.len;
        bool is_print = item->op == WIRE_FINGERPRINTS;
        int code;
        if (item->state != ITEM_OPEN || (!is_print && !is_oldest)) {
            continue;
        }
        code = received_resolve(peer, item, &cursor);
        if (code < 0) {
            return code;
        }
        item->state = code == 1 ? ITEM_DONE : not_found(peer, item, &cursor);
        if (code == 1 && item->data.len + item->lens.len > before) {
            code = received_charge(&peer->receiver, group,
                                   item->data.len + item->lens.len - before);
        }
        if (code < 0) {
            return code;
        }
    }
    return 0;
}

/* ---- delivery ----------------------------------------------------------- */

/* What differences make of the bytes before them in the group. */
static int add_residuals(struct poise_dedup_peer *peer,
                         struct wire_received *group)
{
    struct poise_buf *all = &peer->receiver.scratch;
    uint32_t last = 0;
    int code = 0;

    for (uint32_t i = 0; i < group->count; i++) {
        last = group->items[i].is_residual ? i + 1 : last;
    }
    poise_buf_reset(all);
    for (uint32_t i = 0; i < last && code == 0; i++) {
        struct received_item *item = &group->items[i];
        const uint32_t *lens = (const uint32_t *)(const void *)item->lens.data;
        struct poise_reader body =
            poise_reader_of(item->data.data, item->data.len);
        struct wire_grid grid;
        unsigned mode;
        size_t sum = 0, before = all->len, len;
        char *to;
        if (!item->is_residual) {
            code = poise_buf_append(all, item->data.data, item->data.len);
            continue;
        }
        for (size_t k = 0; k < item->lens.len / sizeof *lens; k++) {
            sum += lens[k];
        }
        to = poise_buf_reserve(all, sum);
        if (!to) {
            return -ENOMEM;
        }
        code = wire_residual_read(&body, &grid, &mode, &len);
        if (code < 0) {
            return code;
        }
        if (wire_residual_take(&grid, mode, body.pos, len, (unsigned char *)to,
                               sum, before) < 0) {
            return wire_bad("differences of senseless length");
        }
        all->len += sum;
        poise_buf_reset(&item->data);
        code = poise_buf_append(&item->data, to, sum);
        item->is_residual = false;
    }
    return code;
}

static int prove(struct poise_dedup_peer *peer,
                 const struct wire_received *group, bool *right)
{
    unsigned char hash[POISE_DEDUP_GROUP_BYTES];
    int code = 0;

    for (uint32_t i = 0; i < group->update_count && code == 0; i++) {
        code = poise_dedup_hasher_update(peer->prover,
                                         group->updates[i].header.data,
                                         group->updates[i].header.len);
    }
    for (uint32_t i = 0; i < group->count && code == 0; i++) {
        code = poise_dedup_hasher_update(
            peer->prover, group->items[i].data.data, group->items[i].data.len);
    }
    if (code == 0) {
        code = poise_dedup_hasher_final(peer->prover, hash);
        *right = memcmp(hash, group->hash, sizeof hash) == 0;
    }
    return code;
}

enum poise_dedup_kind received_kind(const struct received_item *item)
{
    return item->op == WIRE_LITERAL ? POISE_DEDUP_LITERAL
           : item->op == WIRE_FILL  ? POISE_DEDUP_FILL
                                    : POISE_DEDUP_SEGMENT;
}

/* What this connection brings is kept in its order, even what an earlier one
 * brought: the sender has it in this order, too. */
static int keep(struct poise_dedup_peer *peer, uint64_t fingerprint,
                const struct poise_dedup_piece *piece)
{
    struct wire_receiver *receiver = &peer->receiver;
    uint64_t at;
    int code = dedup_store_add(
        peer->options.store, fingerprint, piece->data, piece->len,
        receiver->has_brought ? receiver->brought : UINT64_MAX, &at);

    if (code == 1 && !receiver->has_brought) {
        receiver->has_brought = true;
        receiver->brought = at;
    }
    /* A cache that fails costs bytes, not the transfer. */
    peer->stats.cache_errors += code < 0;
    return code == -ENOMEM ? code : 0;
}

/* The fingerprints of some segments, which lie one behind the other. */
static void expect(const struct poise_dedup_peer *peer,
                   const unsigned char *data, const uint32_t *lens,
                   size_t count, uint64_t *prints)
{
    for (size_t i = 0; i < count; i++) {
        prints[i] = dedup_store_expect(peer->options.store, data, lens[i]);
        data += lens[i];
    }
}

static int deliver_item(struct poise_dedup_peer *peer,
                        struct received_item *item)
{
    struct wire_stream *stream = wire_stream_of(peer, item->stream);
    const uint32_t *lens = (const uint32_t *)(const void *)item->lens.data;
    struct poise_dedup_piece piece = {
        .kind = received_kind(item),
        .data = (const unsigned char *)item->data.data,
        .period = item->period,
    };
    uint64_t prints[DEDUP_BATCH];
    size_t count = item->lens.len / sizeof *lens;
    int code = 0;

    if (!stream) {
        return -ENOMEM;
    }
    if (item->op == WIRE_END) {
        stream->received_at = 0;
        return peer->options.ended
                   ? peer->options.ended(item->stream, peer->options.arg)
                   : 0;
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        bool is_new = piece.kind == POISE_DEDUP_SEGMENT && !item->own;
        if (is_new && i % DEDUP_BATCH == 0) {
            size_t left = count - i;
            expect(peer, piece.data, lens + i,
                   left < DEDUP_BATCH ? left : DEDUP_BATCH, prints);
        }
        piece.len = lens[i];
        piece.place =
            (struct poise_dedup_place){stream->received_at, 0, lens[i], 1};
        if (item->placed && i == 0) {
            piece.place = item->place;
            piece.place.x += stream->received_at;
        }
        if (is_new) {
            code = keep(peer, prints[i % DEDUP_BATCH], &piece);
        }
        if (code == 0 && item->update == 0) {
            code =
                peer->options.deliver(item->stream, &piece, peer->options.arg);
            stream->received_at = piece.place.x + piece.len;
        }
        piece.data += piece.len;
        peer->stats.data_in += piece.len;
    }
    return code;
}

/* A group that is right. */
static int deliver_group(struct poise_dedup_peer *peer,
                         struct wire_received *group)
{
    struct wire_receiver *receiver = &peer->receiver;
    uint32_t next = 0;
    int code = 0;

    for (uint32_t i = 0; i < group->count && code == 0; i++) {
        if (next < group->update_count && group->updates[next].first == i) {
            code = received_update_settle(peer, group, &group->updates[next++]);
        }
        code = code < 0 ? code : deliver_item(peer, &group->items[i]);
    }
    if (code < 0) {
        return code;
    }
    receiver->oldest = group->next;
    receiver->newest = group->next ? receiver->newest : NULL;
    receiver->bytes -= group->bytes;
    receiver->guessed -= group->guessed;
    receiver->count--;
    receiver->acks++;
    receiver->finished++;
    received_free(group);
    return 1;
}

/* The oldest group: 1 if it was delivered, 0 if something is missing. */
static int finish(struct poise_dedup_peer *peer, struct wire_received *group)
{
    bool right = false;
    int code = look_up_group(peer, group, true);

    if (code == 0) {
        code = received_ask(peer, group);
    }
    for (uint32_t i = 0; i < group->count && code == 0; i++) {
        if (group->items[i].state != ITEM_DONE) {
            return 0;
        }
    }
    if (code == 0 && group->hidden > 0) {
        code = received_update_show(peer, group);
    }
    if (code == 0) {
        code = add_residuals(peer, group);
    }
    if (code == 0) {
        code = prove(peer, group, &right);
    }
    if (code < 0) {
        return code;
    }
    return right ? deliver_group(peer, group) : received_ask_again(peer, group);
}

/* Updates that are there before their turn. */
static int show_groups(struct poise_dedup_peer *peer)
{
    struct wire_received *group = peer->receiver.oldest;
    int code = 0;

    for (uint32_t i = 0; group && i < WIRE_GUESS_GROUPS && code == 0 &&
                         peer->receiver.hidden > 0;
         i++, group = group->next) {
        code = group->hidden > 0 ? received_update_show(peer, group) : 0;
    }
    return code;
}

int wire_receiver_advance(struct poise_dedup_peer *peer)
{
    struct wire_received *group;
    int code = 1;

    while (code > 0 && peer->receiver.oldest) {
        code = finish(peer, peer->receiver.oldest);
    }
    if (code < 0) {
        return code;
    }
    for (group = peer->receiver.oldest; group && code >= 0;
         group = group->next) {
        if (!group->looked) {
            group->looked = true;
            code = look_up_group(peer, group, false);
            code = code < 0 ? code : received_ask(peer, group);
        }
    }
    return code < 0 ? code : show_groups(peer);
}
