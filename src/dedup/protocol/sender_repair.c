/*
 * What the receiver answers: groups that it acknowledges go, what it lacks is
 * supplied, and what was wrongly believed of its cache is believed no more for
 * some time, which doubles each time.
 *
 * A receiver asks once for what is missing and once for all of a group whose
 * hash is wrong; more (SUPPLIES) is an error, so that no receiver can make a
 * sender repeat itself for ever. Between, it may ask once for the fingerprints
 * of what it was referred to, and once for those segments that it lacks.
 */
#include "sender.h"

#include <errno.h>
#include <string.h>

enum {
    BACKOFF = 4, /* groups, after a belief failed; doubles */
    BACKOFF_MOST = 1 << 14,
    USELESS = 4, /* groups of fingerprints that all missed */
    DIRECT = 8,  /* groups without fingerprints then; doubles */
    DIRECT_MOST = 256,
    SUPPLIES = 2,     /* once because it is missing, once because it is wrong */
    PRINTS_SHARE = 4, /* fingerprints take at most one in so many bytes */
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

static struct wire_item *item_of(const struct wire_sent *group, uint32_t index)
{
    return (struct wire_item *)(void *)group->items.data + index;
}

/* Lengths of an item's segments. An empty group has no place for any. */
static const uint32_t *lens_of(const struct wire_sent *group,
                               const struct wire_item *item)
{
    const uint32_t *lens = (const uint32_t *)(const void *)group->lens.data;

    return item->count > 0 ? lens + item->first : NULL;
}

/* Write some of an item's segments: all, or those whose distances follow. */
static int supply(struct poise_dedup_peer *peer, const struct wire_sent *group,
                  uint32_t index, const struct poise_buf *which)
{
    const struct wire_item *item = item_of(group, index);
    const uint32_t *lens = lens_of(group, item);
    const bool *wanted = which ? (const bool *)(const void *)which->data : NULL;
    struct poise_buf *raw = &peer->blocks.raw;
    uint32_t count = 0;
    size_t at = item->offset;
    int code = wire_blocks_room(&peer->blocks,
                                item->len + 4 * (size_t)item->count + 32);

    if (code < 0) {
        return code;
    }
    for (uint32_t i = 0; i < item->count; i++) {
        count += !wanted || wanted[i];
    }
    poise_buf_putc(raw, WIRE_SUPPLY);
    poise_buf_varint(raw, group->number);
    poise_buf_varint(raw, index);
    poise_buf_varint(raw, count);
    for (uint32_t i = 0; i < item->count; i++) {
        if (!wanted || wanted[i]) {
            poise_buf_varint(raw, lens[i]);
        }
    }
    for (uint32_t i = 0; i < item->count; at += lens[i++]) {
        if (!wanted || wanted[i]) {
            poise_buf_append(raw, group->data.data + at, lens[i]);
        }
    }
    return raw->error;
}

/* Write the fingerprints of an item's segments, or its bytes where that is
 * hardly more, or where it would be seen that the receiver answers. */
static int name(struct poise_dedup_peer *peer, const struct wire_sent *group,
                uint32_t index)
{
    struct wire_item *item = item_of(group, index);
    const uint32_t *lens = lens_of(group, item);
    struct poise_buf *raw = &peer->blocks.raw;
    size_t prints = item->count * wire_print_bytes(peer->bits);
    size_t at = item->offset;
    int code;

    if (peer->pad > 0 || PRINTS_SHARE * prints > item->len) {
        item->supplied++;
        return supply(peer, group, index, NULL);
    }
    code = wire_blocks_room(&peer->blocks, prints + 48);
    if (code < 0) {
        return code;
    }
    poise_buf_putc(raw, WIRE_ITEM_PRINTS);
    poise_buf_varint(raw, group->number);
    poise_buf_varint(raw, index);
    poise_buf_varint(raw, item->count);
    for (uint32_t i = 0; i < item->count; at += lens[i++]) {
        wire_put_named(peer, group->data.data + at, lens[i]);
    }
    return raw->error;
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

/* The group that a message speaks of, or NULL. */
static struct wire_sent *find_group(struct poise_dedup_peer *peer,
                                    struct poise_reader *message)
{
    uint64_t number = poise_reader_varint(message);
    struct wire_sent *group = leader_of(peer)->sender.oldest;

    while (group && group->number != number) {
        group = group->next;
    }
    if (message->error || !group ||
        (peer->member.leader && number < peer->member.acked)) {
        wire_bad("it asks for what was not sent");
        return NULL;
    }
    return group;
}

/* The next of `count` things, counted from 1, by its distance from *index. */
static int next_index(struct poise_reader *message, uint32_t count,
                      uint64_t *index)
{
    uint64_t by = poise_reader_varint(message);

    if (message->error || by == 0 || by > count || *index + by > count) {
        return wire_bad("it asks for what is not there");
    }
    *index += by;
    return 0;
}

/* Each member may ask for as much as one that is alone. */
static int count_asked(const struct poise_dedup_peer *peer,
                       unsigned char *asked, int most)
{
    most *= peer->member.leader ? WIRE_MEMBERS_MOST : 1;
    return (*asked)++ >= most ? wire_bad("it asks for the same again and again")
                              : 0;
}

int wire_sender_request(struct poise_dedup_peer *peer,
                        struct poise_reader *message)
{
    struct wire_sender *sender = &leader_of(peer)->sender;
    struct wire_sent *group = find_group(peer, message);
    uint64_t count = poise_reader_varint(message), index = 0;
    uint32_t items;
    int code = 0;

    if (!group) {
        return -EBADMSG;
    }
    items = wire_count(&group->items, sizeof(struct wire_item));
    if (count > items) {
        return wire_bad("it asks for more than there is");
    }
    /* All of it, or those that are named by their distances. */
    peer->stats.repairs += count == 0;
    for (uint64_t i = 0; i < (count ? count : items) && code == 0; i++) {
        struct wire_item *item;
        code = count ? next_index(message, items, &index) : 0;
        index += count == 0;
        if (code < 0) {
            return code;
        }
        item = item_of(group, (uint32_t)index - 1);
        code = count_asked(peer, &item->supplied, SUPPLIES);
        if (count == 0 || item->kind != WIRE_ITEM_PRINT) {
            doubt(sender, group);
        }
        group->prints_asked +=
            item->kind == WIRE_ITEM_PRINT && item->supplied == 1;
        peer->stats.requests++;
        code = code < 0 ? code : supply(peer, group, (uint32_t)index - 1, NULL);
    }
    return code;
}

int wire_sender_wanted(struct poise_dedup_peer *peer,
                       struct poise_reader *message)
{
    struct wire_sent *group = find_group(peer, message);
    uint64_t count = poise_reader_varint(message), index = 0;
    uint32_t items;
    int code = 0;

    if (!group) {
        return -EBADMSG;
    }
    items = wire_count(&group->items, sizeof(struct wire_item));
    if (count == 0 || count > items) {
        return wire_bad("it asks for what is not there");
    }
    doubt(&leader_of(peer)->sender, group);
    for (uint64_t i = 0; i < count && code == 0; i++) {
        struct wire_item *item;
        code = next_index(message, items, &index);
        if (code < 0) {
            return code;
        }
        item = item_of(group, (uint32_t)index - 1);
        if (item->kind != WIRE_ITEM_RUN) {
            return wire_bad("it asks for names of what was not named");
        }
        peer->stats.requests++;
        code = count_asked(peer, &item->named, 1);
        code = code < 0 ? code : name(peer, group, (uint32_t)index - 1);
    }
    return code;
}

int wire_sender_lacks(struct poise_dedup_peer *peer,
                      struct poise_reader *message)
{
    struct wire_sent *group = find_group(peer, message);
    uint64_t which = poise_reader_varint(message), index = 0;
    uint64_t count = poise_reader_varint(message);
    struct poise_buf wanted = {0};
    struct wire_item *item;
    bool *is_wanted;
    int code;

    if (!group) {
        return -EBADMSG;
    }
    if (which >= wire_count(&group->items, sizeof *item)) {
        return wire_bad("it asks for what is not there");
    }
    item = item_of(group, (uint32_t)which);
    if (item->completed >= item->named || count == 0 || count > item->count) {
        return wire_bad("it asks for segments of what was not named");
    }
    item->completed++;
    is_wanted = (void *)poise_buf_reserve(&wanted, item->count);
    if (!is_wanted) {
        return -ENOMEM;
    }
    memset(is_wanted, 0, item->count);
    for (uint64_t i = 0; i < count; i++) {
        code = next_index(message, item->count, &index);
        if (code < 0) {
            poise_buf_free(&wanted);
            return code;
        }
        is_wanted[index - 1] = true;
    }
    code = supply(peer, group, (uint32_t)which, &wanted);
    poise_buf_free(&wanted);
    return code;
}
