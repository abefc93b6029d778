/*
 * The messages of processes that rank lists together: nodes that have a
 * predecessor, walkers, ends of walks. Each phase is an exchange of its own
 * (process/peers.c).
 *
 * While walks go on a process may still pass on others' walkers after its own
 * last message. It sends that one when all walks that it began have ended,
 * wherever they went: so when the last messages of all have come, no walk goes
 * on, and no walker is on its way.
 */
#include "group.h"

#include <errno.h>
#include <stdlib.h>

void group_flush(struct rank_group *group, struct outbox *boxes, unsigned dest,
                 int tag)
{
    struct outbox *box = &boxes[dest];

    if (box->used > 0) {
        extmem_peers_send(&group->peers, dest, tag, box->data, box->used);
        box->used = 0;
    }
}

void group_flush_all(struct rank_group *group, struct outbox *boxes, int tag)
{
    for (unsigned i = 0; i < group->peers.processes; i++) {
        group_flush(group, boxes, i, tag);
    }
}

static void take_marks(struct rank_group *group,
                       const struct poise_message *message)
{
    const uint64_t *nodes = message->data;
    size_t count = message->len / sizeof *nodes;

    for (size_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            group_fetch_mark(group, nodes[i + AHEAD]);
        }
        if (group_is_here(group, nodes[i])) {
            group_mark(group, nodes[i]);
        }
    }
    extmem_peers_send(&group->peers, (unsigned)message->source,
                      EXTMEM_TAG_TAKEN, NULL, 0);
}

void group_take_ends(struct rank_group *group,
                     const struct poise_message *message)
{
    const struct walk_end *ends = message->data;
    size_t count = message->len / sizeof *ends;

    for (size_t i = 0; i < count; i++) {
        uint64_t number = ends[i].id & ((UINT64_C(1) << ID_BITS) - 1);

        if (number < group->walk_count) {
            group->walks[number] = (struct walk){ends[i].total, ends[i].end};
            group->ended++;
        }
    }
}

static void keep_arrival(struct rank_group *group,
                         struct poise_message *message)
{
    struct arrival *arrival = poise_alloc(1, sizeof *arrival);

    if (!arrival) {
        extmem_peers_fail(&group->peers, -ENOMEM);
        return;
    }
    arrival->message = *message;
    *message = (struct poise_message){0};
    *group->last_arrival = arrival;
    group->last_arrival = &arrival->next;
}

void group_drop_arrival(struct rank_group *group)
{
    struct arrival *arrival = group->arrivals;

    group->arrivals = arrival->next;
    if (!group->arrivals) {
        group->last_arrival = &group->arrivals;
    }
    poise_message_free(&arrival->message);
    free(arrival);
}

bool group_receive(struct rank_group *group)
{
    struct poise_message message;
    bool came = false;

    while (extmem_peers_receive(&group->peers, &message)) {
        switch (message.tag) {
        case RANK_TAG_MARKS:
            take_marks(group, &message);
            break;
        case RANK_TAG_WALKERS:
            keep_arrival(group, &message);
            break;
        case RANK_TAG_ENDS:
            group_take_ends(group, &message);
            break;
        case EXTMEM_TAG_TAKEN:
            group->peers.all[message.source].under_way--;
            break;
        default:
            break;
        }
        poise_message_free(&message);
        came = true;
    }
    return came;
}

int group_end_exchange(struct rank_group *group)
{
    struct extmem_peers *peers = &group->peers;

    extmem_peers_end_all(peers,
                         peers->code < 0 ? EXTMEM_TAG_STOP : EXTMEM_TAG_END);
    while (!extmem_peers_over(peers)) {
        if (!group_receive(group)) {
            extmem_peers_wait(peers);
        }
    }
    return peers->code;
}
