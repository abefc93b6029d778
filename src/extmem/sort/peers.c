/* A conversation of all processes, and its end. */
#include "extmem/internal.h"

#include <errno.h>
#include <stdlib.h>

int sort_peers_open(struct sort_peers *peers, struct sort_run *run)
{
    *peers = (struct sort_peers){.run = run};
    peers->lines = poise_alloc(run->processes, sizeof *peers->lines);
    if (!peers->lines) {
        return -ENOMEM;
    }
    peers->lines[run->rank].ended = true;
    peers->lines[run->rank].heard = true;
    return 0;
}

void sort_peers_close(struct sort_peers *peers)
{
    free(peers->lines);
    peers->lines = NULL;
}

void sort_peers_fail(struct sort_peers *peers, int code)
{
    if (peers->code == 0) {
        peers->code = code;
    }
    __atomic_store_n(&peers->run->stop, true, __ATOMIC_RELAXED);
}

void sort_peers_tell(struct sort_peers *peers, unsigned dest, int tag,
                     const void *data, size_t len)
{
    enum { TRIES = 100, LATER_NS = 1000 * 1000 };
    struct poise_world *world = peers->run->world;
    int code = poise_world_send(world, (int)dest, tag, data, len);

    for (int i = 1; i < TRIES && code < 0; i++) {
        poise_sleep_ns(LATER_NS);
        code = poise_world_send(world, (int)dest, tag, data, len);
    }
    if (code < 0) {
        sort_peers_fail(peers, code);
    }
}

void sort_peers_end(struct sort_peers *peers, unsigned dest, int tag)
{
    peers->lines[dest].ended = true;
    sort_peers_tell(peers, dest, tag, NULL, 0);
}

bool sort_peers_stop(struct sort_peers *peers)
{
    bool told = false;

    for (unsigned i = 0; i < peers->run->processes; i++) {
        if (!peers->lines[i].ended) {
            sort_peers_end(peers, i, SORT_TAG_STOP);
            told = true;
        }
    }
    return told;
}

bool sort_peers_receive(struct sort_peers *peers, struct poise_message *message)
{
    struct sort_line *line;
    int code = poise_world_receive(peers->run->world, message);

    if (code < 0) {
        sort_peers_fail(peers, code);
        peers->deaf++;
    }
    if (code <= 0) {
        return false;
    }
    peers->deaf = 0;
    line = &peers->lines[message->source];
    if (message->tag == SORT_TAG_STOP) {
        sort_peers_fail(peers, -ECANCELED);
        line->heard = true;
    } else if (message->tag == SORT_TAG_END) {
        line->heard = true;
    }
    return true;
}

bool sort_peers_over(const struct sort_peers *peers)
{
    enum { MOST_DEAF = 100 };

    for (unsigned i = 0; i < peers->run->processes; i++) {
        const struct sort_line *line = &peers->lines[i];

        if (!line->ended || !line->heard || line->under_way > 0) {
            /* Nobody can be heard any more. */
            return peers->deaf > MOST_DEAF;
        }
    }
    return true;
}

void sort_peers_wait(struct sort_peers *peers)
{
    /* Whoever stops the run says so only where all can see it. */
    enum { LOOK_AGAIN_NS = 10 * 1000 * 1000 };

    poise_world_wait(peers->run->world, LOOK_AGAIN_NS);
}
