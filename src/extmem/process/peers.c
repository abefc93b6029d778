/*
 * An exchange of messages among all processes, and how each knows that it is
 * over.
 *
 * Every process sends every other one exactly one last message: END when it
 * has nothing more of its own to send, STOP if something failed. Between two
 * processes messages keep their order, so a process that received the last
 * message of all (`heard`) gets nothing more but answers: TAKEN, of which it
 * counts how many are missing (`under_way`). It leaves when none is, and when
 * its own last messages are sent (`ended`); until then it goes on receiving and
 * answering, so that no process waits for one that has left. A STOP sets the
 * flag that all threads of the process look at, and makes it send its own.
 *
 * Only the thread of the world touches `all`; `stop` alone is shared.
 */
#include "process.h"

#include <errno.h>
#include <stdlib.h>

int extmem_peers_open(struct extmem_peers *peers, struct poise_world *world,
                      bool *stop)
{
    *peers = (struct extmem_peers){
        .world = world,
        .rank = (unsigned)poise_world_rank(world),
        .processes = (unsigned)poise_world_size(world),
        .stop = stop,
    };
    peers->all = poise_alloc(peers->processes, sizeof *peers->all);
    if (!peers->all) {
        return -ENOMEM;
    }
    extmem_peers_begin(peers);
    return 0;
}

void extmem_peers_begin(struct extmem_peers *peers)
{
    for (unsigned i = 0; i < peers->processes; i++) {
        peers->all[i].ended = peers->all[i].heard = i == peers->rank;
    }
}

void extmem_peers_close(struct extmem_peers *peers)
{
    free(peers->all);
    peers->all = NULL;
}

void extmem_peers_fail(struct extmem_peers *peers, int code)
{
    if (peers->code == 0) {
        peers->code = code;
    }
    __atomic_store_n(peers->stop, true, __ATOMIC_RELAXED);
}

void extmem_peers_send(struct extmem_peers *peers, unsigned dest, int tag,
                       const void *data, size_t len)
{
    enum { TRIES = 100, LATER_NS = 1000 * 1000 };
    struct poise_world *world = peers->world;
    int code = poise_world_send(world, (int)dest, tag, data, len);

    for (int i = 1; i < TRIES && code < 0; i++) {
        poise_sleep_ns(LATER_NS);
        code = poise_world_send(world, (int)dest, tag, data, len);
    }
    if (code < 0) {
        extmem_peers_fail(peers, code);
    }
}

void extmem_peers_end(struct extmem_peers *peers, unsigned dest, int tag)
{
    peers->all[dest].ended = true;
    extmem_peers_send(peers, dest, tag, NULL, 0);
}

bool extmem_peers_end_all(struct extmem_peers *peers, int tag)
{
    bool sent = false;

    for (unsigned i = 0; i < peers->processes; i++) {
        if (!peers->all[i].ended) {
            extmem_peers_end(peers, i, tag);
            sent = true;
        }
    }
    return sent;
}

bool extmem_peers_receive(struct extmem_peers *peers,
                          struct poise_message *message)
{
    struct extmem_peer *peer;
    int code = poise_world_receive(peers->world, message);

    if (code < 0) {
        extmem_peers_fail(peers, code);
        peers->failures++;
    }
    if (code <= 0) {
        return false;
    }
    peers->failures = 0;
    peer = &peers->all[message->source];
    if (message->tag == EXTMEM_TAG_STOP) {
        extmem_peers_fail(peers, -ECANCELED);
        peer->heard = true;
    } else if (message->tag == EXTMEM_TAG_END) {
        peer->heard = true;
    }
    return true;
}

bool extmem_peers_over(const struct extmem_peers *peers)
{
    enum { MOST_FAILURES = 100 };

    for (unsigned i = 0; i < peers->processes; i++) {
        const struct extmem_peer *peer = &peers->all[i];

        if (!peer->ended || !peer->heard || peer->under_way > 0) {
            /* Nothing can be received any more. */
            return peers->failures > MOST_FAILURES;
        }
    }
    return true;
}

void extmem_peers_wait(struct extmem_peers *peers)
{
    /* The thread that stops the job only sets a flag. */
    enum { LOOK_AGAIN_NS = 10 * 1000 * 1000 };

    poise_world_wait(peers->world, LOOK_AGAIN_NS);
}
