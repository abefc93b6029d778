/*
 * Several receivers that are sent the same. Who leads makes groups and
 * compressed blocks once, without the fingerprints in them, as each cache has a
 * key of its own; these go before the blocks, to each receiver its own. What
 * comes back is the business of one connection: who lacks something is supplied
 * with it, and a group is kept until the last one has it.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- sending ------------------------------------------------------------ */

void wire_put_named(struct poise_dedup_peer *peer, const void *data, size_t len)
{
    if (!peer->leads) {
        wire_put_print(&peer->blocks.raw,
                       poise_dedup_fingerprint(&peer->key, data, len),
                       peer->bits);
    }
    for (size_t i = 0; i < peer->member_count; i++) {
        struct poise_dedup_peer *member = peer->members[i];
        wire_put_print(&member->member.prints,
                       poise_dedup_fingerprint(&member->key, data, len),
                       member->bits);
        member->member.print_count++;
    }
}

int wire_chorus_join(struct poise_dedup_peer *lead,
                     struct poise_dedup_peer *member)
{
    struct poise_dedup_peer **grown;

    if (lead->member_count == WIRE_MEMBERS_MOST || lead->sender.numbers > 0) {
        return poise_error_set(EINVAL, "send to several", NULL,
                               "%d at most, all from the beginning",
                               WIRE_MEMBERS_MOST);
    }
    grown = poise_realloc(lead->members, lead->member_count + 1, sizeof *grown);
    if (!grown) {
        return -ENOMEM;
    }
    lead->members = grown;
    lead->members[lead->member_count++] = member;
    member->member.lead = lead;
    return 0;
}

void wire_chorus_leave(struct poise_dedup_peer *member)
{
    struct poise_dedup_peer *lead = member->member.lead;
    struct wire_sent *group;
    size_t i = 0;

    if (!lead) {
        return;
    }
    for (group = lead->sender.oldest; group; group = group->next) {
        group->waits -= group->number >= member->member.acked;
    }
    while (lead->members[i] != member) {
        i++;
    }
    lead->members[i] = lead->members[--lead->member_count];
    member->member.lead = NULL;
    wire_sender_settle(lead);
}

bool wire_chorus_met(struct poise_dedup_peer *lead)
{
    for (size_t i = 0; i < lead->member_count; i++) {
        const struct poise_dedup_peer *member = lead->members[i];
        if (!member->met) {
            return false;
        }
        /* What is surely new to one of them is sent as such. */
        if (i == 0 || member->their_containers < lead->their_containers) {
            lead->their_containers = member->their_containers;
        }
    }
    return lead->member_count > 0;
}

static int spread_to(struct poise_dedup_peer *peer, const unsigned char *data,
                     size_t len)
{
    struct wire_member *member = &peer->member;
    struct poise_buf *raw = &peer->blocks.raw;
    int code = member->prints.error;

    if (code == 0 && member->print_count > 0) {
        code = wire_blocks_room(&peer->blocks, member->prints.len + 16);
        poise_buf_putc(raw, WIRE_PRINTS);
        poise_buf_varint(raw, member->print_count);
        poise_buf_append(raw, member->prints.data, member->prints.len);
        poise_buf_reset(&member->prints);
        member->print_count = 0;
    }
    while (code == 0 && len > 0) {
        size_t part = len < WIRE_CHORUS_MOST ? len : WIRE_CHORUS_MOST;
        code = wire_blocks_room(&peer->blocks, part + 16);
        poise_buf_putc(raw, WIRE_CHORUS);
        poise_buf_varint(raw, part);
        poise_buf_append(raw, data, part);
        data += part;
        len -= part;
    }
    code = code < 0 ? code : raw->error;
    return code < 0 ? code : wire_blocks_close(&peer->blocks);
}

int wire_chorus_spread(struct poise_dedup_peer *lead)
{
    const void *data;
    size_t len = poise_dedup_peer_output(lead, &data);
    int code = 0;

    for (size_t i = 0; i < lead->member_count && len > 0 && code == 0; i++) {
        code = spread_to(lead->members[i], data, len);
    }
    poise_dedup_peer_took(lead, len);
    return code;
}

/* ---- hearing ------------------------------------------------------------ */

int wire_chorus_prints(struct poise_dedup_peer *peer,
                       struct poise_reader *message)
{
    uint64_t count = poise_reader_varint(message);
    size_t each =
        wire_print_bytes(poise_dedup_store_info(peer->options.store).bits);
    struct poise_buf *prints = &peer->heard_prints;
    const unsigned char *from;

    if (count > WIRE_UNUSED_MOST / each) {
        return wire_bad("too many fingerprints");
    }
    from = wire_get_bytes(message, count * each);
    if (!from) {
        return wire_bad("a message is cut short");
    }
    /* Those that were used go. */
    if (peer->heard_at > 0) {
        memmove(prints->data, prints->data + peer->heard_at,
                prints->len - peer->heard_at);
        prints->len -= peer->heard_at;
        peer->heard_at = 0;
    }
    if (prints->len + count * each > WIRE_UNUSED_MOST) {
        return wire_bad("fingerprints that nothing refers to");
    }
    return poise_buf_append(prints, from, count * each);
}

uint64_t wire_take_print(struct poise_dedup_peer *peer,
                         struct poise_reader *message, uint32_t bits)
{
    struct poise_reader prints;
    size_t left = peer->heard_prints.len - peer->heard_at;
    uint64_t print;

    if (!peer->hears) {
        return wire_get_print(message, bits);
    }
    prints = poise_reader_of(
        left > 0 ? peer->heard_prints.data + peer->heard_at : NULL, left);
    print = wire_get_print(&prints, bits);
    if (prints.error) {
        message->error = prints.error;
    } else {
        peer->heard_at += wire_print_bytes(bits);
    }
    return print;
}

int wire_chorus_hear(struct poise_dedup_peer *peer,
                     struct poise_reader *message,
                     int (*take)(struct poise_reader *messages, void *arg))
{
    uint64_t len = poise_reader_varint(message);
    const unsigned char *from =
        len <= WIRE_CHORUS_MOST ? wire_get_bytes(message, len) : NULL;
    int code;

    if (!from) {
        return wire_bad("a message is cut short");
    }
    if (!peer->heard) {
        peer->heard = poise_alloc(1, sizeof *peer->heard);
        if (!peer->heard) {
            return -ENOMEM;
        }
        code = wire_blocks_init(peer->heard, 0);
        if (code < 0) {
            return code;
        }
    }
    peer->hears = true;
    code = wire_blocks_feed(peer->heard, from, len, take, peer);
    peer->hears = false;
    return code;
}
