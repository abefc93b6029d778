/*
 * Asking for what a group lacks.
 *
 * What is missing is asked for and comes as bytes. But a reference that leads
 * elsewhere than it did in the sender's cache, as the order of the two differs,
 * stands for segments most of which are here: of such an item the fingerprints
 * are asked for (ITEM_WANTED), each is looked up, and only what is not found is
 * supplied (ITEM_LACKS). Nothing of that is believed: the hash over the group
 * is what proves it, and where it does not, all of the group is asked for.
 */
#include "received.h"

#include <poise/store.h>

#include <errno.h>

enum {
    ITEM_PRINTS_MOST = WIRE_GROUP_MOST / 4, /* that are taken for an item */
    REQUEST_BYTES = 3,                      /* an item in one, at most */
    VAIN_MOST = 63,
};

int received_take_lens(struct poise_reader *message, struct poise_buf *lens,
                       size_t *sum)
{
    uint64_t count = poise_reader_varint(message);

    *sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t len = poise_reader_varint(message);
        uint32_t small = (uint32_t)len;
        *sum += len;
        if (message->error || len == 0 || len > POISE_DEDUP_SEGMENT_MOST ||
            *sum > WIRE_GROUP_MOST) {
            return wire_bad("segments of senseless length");
        }
        if (poise_buf_append(lens, &small, sizeof small) < 0) {
            return -ENOMEM;
        }
    }
    return 0;
}

int received_take_bytes(struct poise_reader *message, size_t len,
                        struct poise_buf *out)
{
    const unsigned char *from = wire_get_bytes(message, len);

    return from ? poise_buf_append(out, from, len)
                : wire_bad("a message is cut short");
}

/* ---- asking ------------------------------------------------------------- */

/* Ask for the items in that state, by their distances. */
static int ask_for(struct poise_dedup_peer *peer, struct wire_received *group,
                   enum wire_op op, enum item_state state)
{
    struct poise_buf *raw = &peer->blocks.raw;
    uint32_t count = 0, last = 0;
    int code;

    for (uint32_t i = 0; i < group->count; i++) {
        count += group->items[i].state == state;
    }
    if (count == 0) {
        return 0;
    }
    code = wire_blocks_room(&peer->blocks, REQUEST_BYTES * (size_t)count + 32);
    if (code < 0) {
        return code;
    }
    poise_buf_putc(raw, (char)op);
    poise_buf_varint(raw, group->number);
    poise_buf_varint(raw, count);
    for (uint32_t i = 0; i < group->count; i++) {
        if (group->items[i].state == state) {
            poise_buf_varint(raw, i + 1 - last);
            last = i + 1;
            group->items[i].state = ITEM_REQUESTED;
        }
    }
    return raw->error;
}

int received_ask(struct poise_dedup_peer *peer, struct wire_received *group)
{
    int code = ask_for(peer, group, WIRE_REQUEST, ITEM_MISSING);

    return code < 0 ? code : ask_for(peer, group, WIRE_ITEM_WANTED, ITEM_MOVED);
}

/* Why an item of a group that is wrong may be the reason: it was looked up, or
 * made with what was. */
static enum item_state suspect(const struct received_item *item)
{
    if (item->is_supplied) {
        return ITEM_DONE;
    }
    switch (item->op) {
    case WIRE_RUN:
    case WIRE_NEXT:
        return item->count > 0 ? ITEM_MOVED : ITEM_DONE;
    case WIRE_DELTA:
    case WIRE_RESIDUAL:
        return ITEM_MISSING;
    default:
        return ITEM_DONE;
    }
}

static int ask_for_all(struct poise_dedup_peer *peer,
                       struct wire_received *group)
{
    int code = wire_blocks_room(&peer->blocks, 32);

    if (code < 0) {
        return code;
    }
    for (uint32_t i = 0; i < group->count; i++) {
        group->items[i].state = ITEM_REQUESTED;
        group->items[i].has_gaps = false;
    }
    group->is_repaired = true;
    poise_buf_putc(&peer->blocks.raw, WIRE_REQUEST);
    poise_buf_varint(&peer->blocks.raw, group->number);
    return poise_buf_varint(&peer->blocks.raw, 0);
}

int received_ask_again(struct poise_dedup_peer *peer,
                       struct wire_received *group)
{
    bool has_moved = false;

    if (group->is_repaired) {
        return wire_bad("a group is not what its hash says");
    }
    for (uint32_t i = 0; i < group->count; i++) {
        has_moved |= suspect(&group->items[i]) == ITEM_MOVED;
    }
    if (!peer->knows_items || group->is_doubted || !has_moved) {
        return ask_for_all(peer, group);
    }
    group->is_doubted = true;
    for (uint32_t i = 0; i < group->count; i++) {
        group->items[i].state = suspect(&group->items[i]);
    }
    return received_ask(peer, group);
}

/* ---- what comes --------------------------------------------------------- */

/* The item that a message speaks of: one that was asked for, or NULL. */
static struct received_item *find_item(struct poise_dedup_peer *peer,
                                       struct poise_reader *message,
                                       struct wire_received **group,
                                       uint64_t *index)
{
    uint64_t number = poise_reader_varint(message);

    *index = poise_reader_varint(message);
    *group = peer->receiver.oldest;
    while (*group && (*group)->number != number) {
        *group = (*group)->next;
    }
    if (message->error || !*group || *index >= (*group)->count ||
        (*group)->items[*index].state != ITEM_REQUESTED) {
        wire_bad("it supplies what was not asked for");
        return NULL;
    }
    return &(*group)->items[*index];
}

/* An item is what it is to be. */
static void complete(struct wire_received *group, struct received_item *item)
{
    item->state = ITEM_DONE;
    item->own = item->is_residual = item->has_gaps = false;
    item->is_supplied = true;
    group->stirred = true;
}

/* Put what came between what was found. */
static int fill_gaps(struct received_item *item, struct poise_reader *message)
{
    struct poise_buf came = {0}, all = {0};
    uint32_t *len = (uint32_t *)(void *)item->lens.data;
    size_t count = item->lens.len / sizeof *len, sum = 0, next = 0;
    const char *found = item->data.data;
    int code = received_take_lens(message, &came, &sum);
    const unsigned char *data = code < 0 ? NULL : wire_get_bytes(message, sum);
    const uint32_t *came_len = (const uint32_t *)(const void *)came.data;

    if (code == 0 && (!data || item->data.len + sum > WIRE_GROUP_MOST)) {
        code = wire_bad("segments of senseless length");
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        if (len[i] > 0) {
            code = poise_buf_append(&all, found, len[i]);
            found += len[i];
        } else if (next < came.len / sizeof *len) {
            len[i] = came_len[next++];
            code = poise_buf_append(&all, data, len[i]);
            data += len[i];
        } else {
            code = wire_bad("it supplies less than was asked for");
        }
    }
    if (code == 0 && next < came.len / sizeof *len) {
        code = wire_bad("it supplies more than was asked for");
    }
    poise_buf_free(&came);
    if (code < 0) {
        poise_buf_free(&all);
        return code;
    }
    poise_buf_free(&item->data);
    item->data = all;
    return 0;
}

int wire_receiver_supply(struct poise_dedup_peer *peer,
                         struct poise_reader *message)
{
    struct wire_received *group;
    uint64_t index, before;
    struct received_item *item = find_item(peer, message, &group, &index);
    size_t sum;
    int code;

    if (!item) {
        return -EBADMSG;
    }
    before = item->has_gaps ? item->data.len + item->lens.len : 0;
    if (item->has_gaps) {
        code = fill_gaps(item, message);
    } else {
        received_replace(group, item);
        code = received_take_lens(message, &item->lens, &sum);
        code = code < 0 ? code : received_take_bytes(message, sum, &item->data);
    }
    complete(group, item);
    return code < 0 ? code
                    : received_charge(&peer->receiver, group,
                                      item->data.len + item->lens.len - before);
}

/* A segment by its fingerprint, which most often lies behind the one before:
 * 1. */
static int find_print(struct poise_dedup_peer *peer, uint64_t print,
                      uint32_t bits, uint64_t before, bool has_before,
                      uint64_t *at)
{
    struct poise_dedup_store *store = peer->options.store;
    const struct dedup_entry *entry;
    int code = has_before ? poise_dedup_store_step(store, before, 1, at) : 0;

    code = code > 0 ? dedup_store_entry(store, *at, &entry) : code;
    if (code > 0 && poise_dedup_short(entry->fingerprint, bits) == print) {
        return 1;
    }
    return code < 0 ? code : poise_dedup_store_find(store, print, at);
}

/* Whether an item's fingerprints found nothing: then the next runs that are
 * missing are asked for as bytes, twice as many each time. */
static void learn(struct wire_receiver *receiver, bool in_vain)
{
    uint32_t more = 2 * receiver->vain + 1;

    receiver->vain = !in_vain ? 0 : more < VAIN_MOST ? more : VAIN_MOST;
    receiver->vain_left = receiver->vain;
}

/* Look up the segments of an item; *lacks: how many are not here. */
static int take_prints(struct poise_dedup_peer *peer,
                       struct received_item *item, struct poise_reader *message,
                       uint64_t count, uint32_t *lacks)
{
    struct poise_dedup_store *store = peer->options.store;
    uint32_t bits = poise_dedup_store_info(store).bits;
    bool has_before = false;
    uint64_t at = 0, before = 0;

    *lacks = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t print = wire_get_print(message, bits);
        struct poise_dedup_stored stored = {0};
        int code = message->error
                       ? wire_bad("a message is cut short")
                       : find_print(peer, print, bits, before, has_before, &at);
        if (code > 0) {
            code = poise_dedup_store_read(store, at, &stored);
        }
        has_before = code > 0;
        before = at;
        *lacks += code == 0;
        if (code > 0 && item->data.len + stored.len > WIRE_GROUP_MOST) {
            code = wire_bad("an item of senseless length");
        }
        if (code > 0) {
            code = poise_buf_append(&item->data, stored.data, stored.len);
        }
        if (code < 0 || received_len(item, has_before ? stored.len : 0) < 0) {
            return code < 0 ? code : -ENOMEM;
        }
    }
    return 0;
}

static int ask_for_gaps(struct poise_dedup_peer *peer,
                        const struct wire_received *group, uint64_t index,
                        uint32_t lacks)
{
    const struct received_item *item = &group->items[index];
    const uint32_t *len = (const uint32_t *)(const void *)item->lens.data;
    struct poise_buf *raw = &peer->blocks.raw;
    size_t last = 0;
    int code =
        wire_blocks_room(&peer->blocks, REQUEST_BYTES * (size_t)lacks + 48);

    if (code < 0) {
        return code;
    }
    poise_buf_putc(raw, WIRE_ITEM_LACKS);
    poise_buf_varint(raw, group->number);
    poise_buf_varint(raw, index);
    poise_buf_varint(raw, lacks);
    for (size_t i = 0; i < item->lens.len / sizeof *len; i++) {
        if (len[i] == 0) {
            poise_buf_varint(raw, i + 1 - last);
            last = i + 1;
        }
    }
    return raw->error;
}

int wire_receiver_prints(struct poise_dedup_peer *peer,
                         struct poise_reader *message)
{
    struct wire_received *group;
    uint64_t index, count;
    struct received_item *item = find_item(peer, message, &group, &index);
    uint32_t lacks;
    int code;

    if (!item) {
        return -EBADMSG;
    }
    count = poise_reader_varint(message);
    if ((item->op != WIRE_RUN && item->op != WIRE_NEXT) || item->has_gaps ||
        count == 0 || count > ITEM_PRINTS_MOST) {
        return wire_bad("it names what was not asked for");
    }
    received_replace(group, item);
    code = take_prints(peer, item, message, count, &lacks);
    if (code == 0) {
        code = received_charge(&peer->receiver, group,
                               item->data.len + item->lens.len);
    }
    learn(&peer->receiver, lacks == count);
    if (code == 0 && lacks > 0) {
        item->has_gaps = true;
        return ask_for_gaps(peer, group, index, lacks);
    }
    complete(group, item);
    return code;
}
