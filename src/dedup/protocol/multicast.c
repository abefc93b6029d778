/*
 * Multicast: several receivers that are sent the same.
 *
 * The leader makes groups and compressed blocks once. Fingerprints cannot be in
 * them, as each cache has a key of its own: each member collects its own
 * (wire_put_named), and sends them as PRINTS before the blocks that they belong
 * to, which go as bytes in MULTICAST messages. A receiver reads the next of its
 * PRINTS wherever a message of such a block has a fingerprint. So both sides
 * have to come upon fingerprints in the same order, which they do, as the
 * messages are the same for all.
 *
 * What comes back belongs to one connection: a member acknowledges groups by
 * itself (`acked`: all below), a group is kept until `waits`, the number of
 * members that have not acknowledged it, is 0, and what one receiver lacks is
 * supplied through its own connection. A member that leaves is taken off the
 * `waits` of all groups that it had not acknowledged.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- sending ------------------------------------------------------------ */

void wire_put_named(struct poise_dedup_peer *peer, const void *data, size_t len)
{
    if (!peer->is_leader) {
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

int wire_multicast_join(struct poise_dedup_peer *leader,
                        struct poise_dedup_peer *member)
{
    struct poise_dedup_peer **grown;

    if (leader->member_count == WIRE_MEMBERS_MOST ||
        leader->sender.numbers > 0) {
        return poise_error_set(EINVAL, "multicast", NULL,
                               "%d at most, all from the beginning",
                               WIRE_MEMBERS_MOST);
    }
    grown =
        poise_realloc(leader->members, leader->member_count + 1, sizeof *grown);
    if (!grown) {
        return -ENOMEM;
    }
    leader->members = grown;
    leader->members[leader->member_count++] = member;
    member->member.leader = leader;
    return 0;
}

void wire_multicast_leave(struct poise_dedup_peer *member)
{
    struct poise_dedup_peer *leader = member->member.leader;
    struct wire_sent *group;
    size_t i = 0;

    if (!leader) {
        return;
    }
    for (group = leader->sender.oldest; group; group = group->next) {
        group->waits -= group->number >= member->member.acked;
    }
    while (leader->members[i] != member) {
        i++;
    }
    leader->members[i] = leader->members[--leader->member_count];
    member->member.leader = NULL;
    wire_sender_release(leader);
}

bool wire_multicast_is_ready(struct poise_dedup_peer *leader)
{
    for (size_t i = 0; i < leader->member_count; i++) {
        const struct poise_dedup_peer *member = leader->members[i];
        if (!member->met) {
            return false;
        }
        /* What is surely new to one of them is sent as such. */
        if (i == 0 || member->their_containers < leader->their_containers) {
            leader->their_containers = member->their_containers;
        }
    }
    return leader->member_count > 0;
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
        size_t part = len < WIRE_MULTICAST_MOST ? len : WIRE_MULTICAST_MOST;
        code = wire_blocks_room(&peer->blocks, part + 16);
        poise_buf_putc(raw, WIRE_MULTICAST);
        poise_buf_varint(raw, part);
        poise_buf_append(raw, data, part);
        data += part;
        len -= part;
    }
    code = code < 0 ? code : raw->error;
    return code < 0 ? code : wire_blocks_close(&peer->blocks);
}

int wire_multicast_send(struct poise_dedup_peer *leader)
{
    const void *data;
    size_t len = poise_dedup_peer_output(leader, &data);
    int code = 0;

    for (size_t i = 0; i < leader->member_count && len > 0 && code == 0; i++) {
        code = spread_to(leader->members[i], data, len);
    }
    poise_dedup_peer_took(leader, len);
    return code;
}

/* ---- hearing ------------------------------------------------------------ */

int wire_multicast_prints(struct poise_dedup_peer *peer,
                          struct poise_reader *message)
{
    uint64_t count = poise_reader_varint(message);
    size_t each =
        wire_print_bytes(poise_dedup_store_info(peer->options.store).bits);
    struct poise_buf *prints = &peer->multicast_prints;
    const unsigned char *from;

    if (count > WIRE_UNUSED_MOST / each) {
        return wire_bad("too many fingerprints");
    }
    from = wire_get_bytes(message, count * each);
    if (!from) {
        return wire_bad("a message is cut short");
    }
    /* Those that were used go. */
    if (peer->multicast_at > 0) {
        memmove(prints->data, prints->data + peer->multicast_at,
                prints->len - peer->multicast_at);
        prints->len -= peer->multicast_at;
        peer->multicast_at = 0;
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
    size_t left = peer->multicast_prints.len - peer->multicast_at;
    uint64_t print;

    if (!peer->in_multicast) {
        return wire_get_print(message, bits);
    }
    prints = poise_reader_of(
        left > 0 ? peer->multicast_prints.data + peer->multicast_at : NULL,
        left);
    print = wire_get_print(&prints, bits);
    if (prints.error) {
        message->error = prints.error;
    } else {
        peer->multicast_at += wire_print_bytes(bits);
    }
    return print;
}

int wire_multicast_receive(struct poise_dedup_peer *peer,
                           struct poise_reader *message,
                           int (*take)(struct poise_reader *messages,
                                       void *arg))
{
    uint64_t len = poise_reader_varint(message);
    const unsigned char *from =
        len <= WIRE_MULTICAST_MOST ? wire_get_bytes(message, len) : NULL;
    int code;

    if (!from) {
        return wire_bad("a message is cut short");
    }
    if (!peer->multicast) {
        peer->multicast = poise_alloc(1, sizeof *peer->multicast);
        if (!peer->multicast) {
            return -ENOMEM;
        }
        code = wire_blocks_init(peer->multicast, 0);
        if (code < 0) {
            return code;
        }
    }
    peer->in_multicast = true;
    code = wire_blocks_feed(peer->multicast, from, len, take, peer);
    peer->in_multicast = false;
    return code;
}
