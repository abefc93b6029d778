/*
 * What processes that rank lists together say to each other: nodes that have a
 * predecessor, walkers, ends of walks.
 */
#include "ranks.h"

#include <errno.h>
#include <stdlib.h>

void crew_flush(struct crew *crew, struct outbox *boxes, unsigned dest, int tag)
{
    struct outbox *box = &boxes[dest];

    if (box->used > 0) {
        extmem_peers_send(&crew->peers, dest, tag, box->data, box->used);
        box->used = 0;
    }
}

void crew_flush_all(struct crew *crew, struct outbox *boxes, int tag)
{
    for (unsigned i = 0; i < crew->peers.processes; i++) {
        crew_flush(crew, boxes, i, tag);
    }
}

static void take_marks(struct crew *crew, const struct poise_message *message)
{
    const uint64_t *nodes = message->data;
    size_t count = message->len / sizeof *nodes;

    for (size_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            crew_fetch_mark(crew, nodes[i + AHEAD]);
        }
        if (crew_is_here(crew, nodes[i])) {
            crew_mark(crew, nodes[i]);
        }
    }
    extmem_peers_send(&crew->peers, (unsigned)message->source, EXTMEM_TAG_TAKEN,
                      NULL, 0);
}

void crew_take_ends(struct crew *crew, const struct poise_message *message)
{
    const struct walk_end *ends = message->data;
    size_t count = message->len / sizeof *ends;

    for (size_t i = 0; i < count; i++) {
        uint64_t number = ends[i].id & ((UINT64_C(1) << ID_BITS) - 1);

        if (number < crew->walk_count) {
            crew->walks[number] = (struct walk){ends[i].total, ends[i].end};
            crew->ended++;
        }
    }
}

static void keep_letter(struct crew *crew, struct poise_message *message)
{
    struct letter *letter = poise_alloc(1, sizeof *letter);

    if (!letter) {
        extmem_peers_fail(&crew->peers, -ENOMEM);
        return;
    }
    letter->message = *message;
    *message = (struct poise_message){0};
    *crew->last_letter = letter;
    crew->last_letter = &letter->next;
}

void crew_drop_letter(struct crew *crew)
{
    struct letter *letter = crew->letters;

    crew->letters = letter->next;
    if (!crew->letters) {
        crew->last_letter = &crew->letters;
    }
    poise_message_free(&letter->message);
    free(letter);
}

bool crew_hear(struct crew *crew)
{
    struct poise_message message;
    bool came = false;

    while (extmem_peers_receive(&crew->peers, &message)) {
        switch (message.tag) {
        case RANK_TAG_MARKS:
            take_marks(crew, &message);
            break;
        case RANK_TAG_WALKERS:
            keep_letter(crew, &message);
            break;
        case RANK_TAG_ENDS:
            crew_take_ends(crew, &message);
            break;
        case EXTMEM_TAG_TAKEN:
            crew->peers.all[message.source].under_way--;
            break;
        default:
            break;
        }
        poise_message_free(&message);
        came = true;
    }
    return came;
}

int crew_farewell(struct crew *crew)
{
    struct extmem_peers *peers = &crew->peers;

    extmem_peers_end_all(peers,
                         peers->code < 0 ? EXTMEM_TAG_STOP : EXTMEM_TAG_END);
    while (!extmem_peers_over(peers)) {
        if (!crew_hear(crew)) {
            extmem_peers_wait(peers);
        }
    }
    return peers->code;
}
