/*
 * Groups of items: made of pieces, hashed as a whole, kept until all receivers
 * of them have acknowledged them.
 *
 * A group is open (being made), then in the list from oldest to newest; acks
 * come in the order of groups, so the oldest goes first. Its data are kept all
 * that time: they are what a receiver that lacks something is supplied with.
 * in_flight is the sum of the weights in the list, which are at least what a
 * receiver charges itself for these groups; a sender that stops early enough
 * never makes a receiver exceed WIRE_PENDING_MOST.
 */
#include "sender.h"

#include <errno.h>
#include <stdlib.h>

enum {
    SPARES = 8,
    SMALL_BYTES = 1 << 16, /* a group's data beyond these get all their room */
};

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
void wire_group_put_spare(struct wire_sender *sender, struct wire_sent *group)
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

uint32_t wire_count(const struct poise_buf *buf, size_t each)
{
    return (uint32_t)(buf->len / each);
}

int wire_group_open(struct poise_dedup_peer *peer)
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

int wire_group_add_item(struct wire_sent *group, enum wire_item_kind kind,
                        uint32_t offset, uint32_t first)
{
    struct wire_item item = {
        .offset = offset,
        .len = (uint32_t)group->data.len - offset,
        .first = first,
        .count = wire_count(&group->lens, sizeof(uint32_t)) - first,
        .kind = kind,
    };

    return poise_buf_append(&group->items, &item, sizeof item);
}

/* Put the piece's bytes into the group. */
int wire_group_add_bytes(struct wire_sent *group,
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

int wire_sender_keep(struct poise_dedup_peer *peer, uint64_t print,
                     const void *data, size_t len)
{
    struct wire_sender *sender = &peer->sender;
    uint64_t at, since = sender->has_brought ? sender->brought : UINT64_MAX;
    int code =
        dedup_store_add(peer->options.store, print, data, len, since, &at);

    peer->stats.cache_errors += code < 0 && code != -ENOMEM;
    if (code == 1 && !sender->has_added) {
        sender->has_added = true;
        sender->added = at;
    }
    if (code == 1 && !sender->has_brought) {
        sender->has_brought = true;
        sender->brought = at;
    }
    return code == -ENOMEM ? code : 0;
}

int wire_sender_close_group(struct poise_dedup_peer *peer)
{
    struct wire_sender *sender = &peer->sender;
    struct wire_sent *group = sender->open;
    unsigned char hash[POISE_DEDUP_GROUP_BYTES];
    int code = group ? wire_write_held(peer) : 0;

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
                        wire_count(&group->items, sizeof(struct wire_item));
    sender->in_flight += group->weight;
    group->waits = peer->is_leader ? (uint32_t)peer->member_count : 1;
    for (size_t i = 0; i < peer->member_count; i++) {
        peer->members[i]->member.in_flight += group->weight;
    }
    peer->blocks.behind += group->weight;
    *(sender->newest ? &sender->newest->next : &sender->oldest) = group;
    sender->newest = group;
    sender->open = NULL;
    peer->stats.groups++;
    if (code == 0 && peer->blocks.behind >= WIRE_BLOCK_BEHIND) {
        /* A few bytes may name very much, and a sender that waits for its
         * arrival would wait for ever for what was not sent. */
        code = wire_blocks_close(&peer->blocks);
    }
    return code;
}

int wire_group_close_full(struct poise_dedup_peer *peer)
{
    const struct wire_sender *sender = &peer->sender;
    const struct wire_sent *group = sender->open;
    uint32_t steps =
        sender->proved / WIRE_GROUPS_PROVED + (sender->doubted > 0 ? 0 : 2);
    uint32_t most = WIRE_GROUP_BELIEVED << (steps < 4 ? steps : 4);

    if (sender->is_update) {
        return 0;
    }
    if (!group->believes && sender->held != WIRE_HELD_RUN) {
        most = WIRE_GROUP_BYTES;
    }
    return group->data.len >= most ||
                   wire_count(&group->items, sizeof(struct wire_item)) >=
                       WIRE_GROUP_ITEMS ||
                   group->prints >= WIRE_GROUP_PRINTS
               ? wire_sender_close_group(peer)
               : 0;
}
