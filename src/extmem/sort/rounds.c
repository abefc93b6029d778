/*
 * Turns over several processes: one message goes round, from the writer of each
 * bucket to that of the next one, and says where that begins. Buckets go round
 * among the processes, so that all of them sort while one writes.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct turn {
    uint64_t bucket, offset;
};
#define NO_BUCKET UINT64_MAX

struct sort_turns {
    struct sort_run *run;
    struct poise_event *turned;
    pthread_mutex_t lock;
    struct turn here; /* under the lock: whose turn it is; NO_BUCKET */
    struct turn next; /* the same: to be sent */
    unsigned left;    /* __atomic: threads */
    struct extmem_peers peers;
};

/* The first bucket from `number` on that somebody writes. */
static uint64_t find_bucket(const struct sort_run *run, uint64_t number)
{
    while (number < run->writer_count && run->writers[number] == SORT_NOBODY) {
        number++;
    }
    return number < run->writer_count ? number : NO_BUCKET;
}

int sort_turns_open(struct sort_run *run, struct poise_event *turned,
                    struct sort_turns **out)
{
    struct sort_turns *turns = poise_alloc(1, sizeof *turns);
    uint64_t first = find_bucket(run, 0);
    int code;

    if (!turns) {
        return -ENOMEM;
    }
    *turns = (struct sort_turns){
        .run = run,
        .turned = turned,
        .here = {NO_BUCKET, 0},
        .next = {NO_BUCKET, 0},
    };
    code = extmem_peers_open(&turns->peers, run->world, &run->stop);
    if (code < 0) {
        free(turns);
        return code;
    }
    if (first != NO_BUCKET && run->writers[first] == run->rank) {
        turns->here.bucket = first;
    }
    pthread_mutex_init(&turns->lock, NULL);
    *out = turns;
    return 0;
}

void sort_turns_close(struct sort_turns *turns)
{
    if (turns) {
        extmem_peers_close(&turns->peers);
        pthread_mutex_destroy(&turns->lock);
        free(turns);
    }
}

/* ---- threads that write ------------------------------------------------- */

bool sort_turns_is(struct sort_turns *turns, uint32_t number, uint64_t *offset)
{
    bool is_it;

    pthread_mutex_lock(&turns->lock);
    is_it = turns->here.bucket == number;
    if (is_it) {
        *offset = turns->here.offset;
    }
    pthread_mutex_unlock(&turns->lock);
    return is_it;
}

void sort_turns_pass(struct sort_turns *turns, uint32_t number, uint64_t offset,
                     bool is_over)
{
    const struct sort_run *run = turns->run;
    struct turn next = {find_bucket(run, (uint64_t)number + is_over), offset};
    bool stays =
        next.bucket == NO_BUCKET || run->writers[next.bucket] == run->rank;

    pthread_mutex_lock(&turns->lock);
    turns->here = stays ? next : (struct turn){NO_BUCKET, 0};
    if (!stays) {
        turns->next = next;
    }
    pthread_mutex_unlock(&turns->lock);
    if (!stays) {
        poise_world_wake(run->world);
    }
}

void sort_turns_leave(struct sort_turns *turns)
{
    __atomic_fetch_add(&turns->left, 1, __ATOMIC_RELEASE);
    poise_world_wake(turns->run->world);
}

/* ---- the world's thread ------------------------------------------------- */

/* Send the turn on if there is one; whether there was. */
static bool send_turn(struct sort_turns *turns)
{
    struct turn next;

    pthread_mutex_lock(&turns->lock);
    next = turns->next;
    turns->next.bucket = NO_BUCKET;
    pthread_mutex_unlock(&turns->lock);
    if (next.bucket == NO_BUCKET || extmem_stopped(&turns->run->stop)) {
        return false;
    }
    extmem_peers_send(&turns->peers, turns->run->writers[next.bucket],
                      SORT_TAG_TURN, &next, sizeof next);
    return true;
}

static void take_turn(struct sort_turns *turns,
                      const struct poise_message *message)
{
    struct turn turn;

    if (message->len != sizeof turn) {
        extmem_peers_fail(&turns->peers,
                          poise_error_set(EBADMSG, "sort", NULL,
                                          "a message is not one of a sort"));
        return;
    }
    memcpy(&turn, message->data, sizeof turn);
    pthread_mutex_lock(&turns->lock);
    turns->here = turn;
    pthread_mutex_unlock(&turns->lock);
    poise_event_signal(turns->turned);
}

/* Whether something was done. */
static bool step(struct sort_turns *turns)
{
    struct extmem_peers *peers = &turns->peers;
    const struct sort_run *run = turns->run;
    bool all_left =
        __atomic_load_n(&turns->left, __ATOMIC_ACQUIRE) == run->plan.lanes;
    bool busy = send_turn(turns);
    struct poise_message message;

    if (all_left) {
        busy |= extmem_peers_end_all(peers, EXTMEM_TAG_END);
    }
    while (extmem_peers_receive(peers, &message)) {
        if (message.tag == SORT_TAG_TURN) {
            take_turn(turns, &message);
        }
        poise_message_free(&message);
        busy = true;
    }
    return busy;
}

int sort_turns_run(struct sort_turns *turns)
{
    struct extmem_peers *peers = &turns->peers;

    while (!extmem_peers_over(peers)) {
        bool stops = extmem_stopped(&turns->run->stop) &&
                     extmem_peers_end_all(peers, EXTMEM_TAG_STOP);

        if (!step(turns) && !stops) {
            extmem_peers_wait(peers);
        }
    }
    /* Who waits for a turn that never comes. */
    poise_event_signal(turns->turned);
    return peers->code;
}
