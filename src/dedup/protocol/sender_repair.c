/*
 * What the receiver answers: groups that it acknowledges go, what it lacks is
 * supplied, and what was wrongly believed of its cache is believed no more for
 * some time, which doubles each time.
 *
 * A receiver asks once for what is missing and once for all of a group whose
 * hash is wrong; more (SUPPLIES) is an error, so that no receiver can make a
 * sender repeat itself for ever.
 */
#include "sender.h"

#include <errno.h>

enum {
    BACKOFF = 4, /* groups, after a belief failed; doubles */
    BACKOFF_MOST = 1 << 14,
    USELESS = 4, /* groups of fingerprints that all missed */
    DIRECT = 8,  /* groups without fingerprints then; doubles */
    DIRECT_MOST = 256,
    SUPPLIES = 2, /* once because it is missing, once because it is wrong */
};

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
        sender->proved += group->number >= sender->doubted;
    }
}

void wire_sender_release(struct poise_dedup_peer *peer)
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
        wire_group_put_spare(sender, group);
    }
}

/* Whose groups the other end speaks of. */
static struct poise_dedup_peer *leader_of(struct poise_dedup_peer *peer)
{
    return peer->member.leader ? peer->member.leader : peer;
}

int wire_sender_ack(struct poise_dedup_peer *peer, struct poise_reader *message)
{
    struct poise_dedup_peer *leader = leader_of(peer);
    struct wire_sent *group = leader->sender.oldest;
    uint64_t count = poise_reader_varint(message);

    while (group && peer->member.leader && group->number < peer->member.acked) {
        group = group->next;
    }
    for (; count > 0 && message->error == 0; count--, group = group->next) {
        if (!group) {
            return wire_bad("it acknowledges what was not sent");
        }
        group->waits--;
        peer->member.acked = group->number + 1;
        peer->member.in_flight -= peer->member.leader ? group->weight : 0;
    }
    wire_sender_release(leader);
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
    sender->proved = 0;
    sender->backoff = sender->backoff > late ? sender->backoff : late;
    sender->backoff = sender->backoff > BACKOFF ? sender->backoff : BACKOFF;
    twice = 2 * sender->backoff;
    sender->distrust_until = sender->numbers + sender->backoff;
    if (!group->believes_old) {
        /* What this connection brought is there, but lies otherwise. */
        sender->distrust_all_until = sender->distrust_until;
    }
    sender->backoff = twice < BACKOFF_MOST ? twice : BACKOFF_MOST;
}

int wire_sender_request(struct poise_dedup_peer *peer,
                        struct poise_reader *message)
{
    struct poise_dedup_peer *leader = leader_of(peer);
    struct wire_sender *sender = &leader->sender;
    /* Each member may ask for as much as one that is alone. */
    int most = SUPPLIES * (leader->is_leader ? WIRE_MEMBERS_MOST : 1);
    uint64_t number = poise_reader_varint(message);
    uint64_t count = poise_reader_varint(message), index = 0;
    struct wire_sent *group = sender->oldest;
    uint32_t items;
    int code = 0;

    while (group && group->number != number) {
        group = group->next;
    }
    if (message->error || !group ||
        (peer->member.leader && number < peer->member.acked)) {
        return wire_bad("it asks for what was not sent");
    }
    items = wire_count(&group->items, sizeof(struct wire_item));
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
