/*
 * Turns of writing over several processes: one token goes round, from the
 * writer of each bucket to that of the next one, and says where that begins.
 * Buckets go round among the processes, so that all of them sort while one
 * writes.
 *
 * There is one token: it is in `here` of one process, or in `next` of one, or
 * in a message. Only the thread whose job it is moves it out of `here`
 * (sort_ring_pass); only the world's thread moves it from `next` into a message
 * and from a message into `here`, and signals `turned` then. A thread reads
 * `turned` before it looks at `here`, so that it misses no signal.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct token {
    uint64_t bucket, offset;
};
#define NO_BUCKET UINT64_MAX

struct sort_ring {
    struct sort_run *run;
    struct poise_event *turned;
    pthread_mutex_t lock;
    struct token here; /* under the lock: the token; NO_BUCKET: not here */
    struct token next; /* the same: to be sent */
    unsigned left;     /* __atomic: threads */
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

int sort_ring_open(struct sort_run *run, struct poise_event *turned,
                   struct sort_ring **out)
{
    struct sort_ring *ring = poise_alloc(1, sizeof *ring);
    uint64_t first = find_bucket(run, 0);
    int code;

    if (!ring) {
        return -ENOMEM;
    }
    *ring = (struct sort_ring){
        .run = run,
        .turned = turned,
        .here = {NO_BUCKET, 0},
        .next = {NO_BUCKET, 0},
    };
    code = extmem_peers_open(&ring->peers, run->world, &run->stop);
    if (code < 0) {
        free(ring);
        return code;
    }
    if (first != NO_BUCKET && run->writers[first] == run->rank) {
        ring->here.bucket = first;
    }
    pthread_mutex_init(&ring->lock, NULL);
    *out = ring;
    return 0;
}

void sort_ring_close(struct sort_ring *ring)
{
    if (ring) {
        extmem_peers_close(&ring->peers);
        pthread_mutex_destroy(&ring->lock);
        free(ring);
    }
}

/* ---- threads that write ------------------------------------------------- */

bool sort_ring_is_at(struct sort_ring *ring, uint32_t number, uint64_t *offset)
{
    bool is_it;

    pthread_mutex_lock(&ring->lock);
    is_it = ring->here.bucket == number;
    if (is_it) {
        *offset = ring->here.offset;
    }
    pthread_mutex_unlock(&ring->lock);
    return is_it;
}

void sort_ring_pass(struct sort_ring *ring, uint32_t number, uint64_t offset,
                    bool is_over)
{
    const struct sort_run *run = ring->run;
    struct token next = {find_bucket(run, (uint64_t)number + is_over), offset};
    bool stays =
        next.bucket == NO_BUCKET || run->writers[next.bucket] == run->rank;

    pthread_mutex_lock(&ring->lock);
    ring->here = stays ? next : (struct token){NO_BUCKET, 0};
    if (!stays) {
        ring->next = next;
    }
    pthread_mutex_unlock(&ring->lock);
    if (!stays) {
        poise_world_wake(run->world);
    }
}

void sort_ring_leave(struct sort_ring *ring)
{
    __atomic_fetch_add(&ring->left, 1, __ATOMIC_RELEASE);
    poise_world_wake(ring->run->world);
}

/* ---- the world's thread ------------------------------------------------- */

/* Send the token on if there is one; whether there was. */
static bool send_token(struct sort_ring *ring)
{
    struct token next;

    pthread_mutex_lock(&ring->lock);
    next = ring->next;
    ring->next.bucket = NO_BUCKET;
    pthread_mutex_unlock(&ring->lock);
    if (next.bucket == NO_BUCKET || extmem_stopped(&ring->run->stop)) {
        return false;
    }
    extmem_peers_send(&ring->peers, ring->run->writers[next.bucket],
                      SORT_TAG_TOKEN, &next, sizeof next);
    return true;
}

static void take_token(struct sort_ring *ring,
                       const struct poise_message *message)
{
    struct token token;

    if (message->len != sizeof token) {
        extmem_peers_fail(&ring->peers,
                          poise_error_set(EBADMSG, "sort", NULL,
                                          "a message is not one of a sort"));
        return;
    }
    memcpy(&token, message->data, sizeof token);
    pthread_mutex_lock(&ring->lock);
    ring->here = token;
    pthread_mutex_unlock(&ring->lock);
    poise_event_signal(ring->turned);
}

/* Whether something was done. */
static bool step(struct sort_ring *ring)
{
    struct extmem_peers *peers = &ring->peers;
    const struct sort_run *run = ring->run;
    bool all_left =
        __atomic_load_n(&ring->left, __ATOMIC_ACQUIRE) == run->plan.lanes;
    bool busy = send_token(ring);
    struct poise_message message;

    if (all_left) {
        busy |= extmem_peers_end_all(peers, EXTMEM_TAG_END);
    }
    while (extmem_peers_receive(peers, &message)) {
        if (message.tag == SORT_TAG_TOKEN) {
            take_token(ring, &message);
        }
        poise_message_free(&message);
        busy = true;
    }
    return busy;
}

int sort_ring_run(struct sort_ring *ring)
{
    struct extmem_peers *peers = &ring->peers;

    while (!extmem_peers_over(peers)) {
        bool stops = extmem_stopped(&ring->run->stop) &&
                     extmem_peers_end_all(peers, EXTMEM_TAG_STOP);

        if (!step(ring) && !stops) {
            extmem_peers_wait(peers);
        }
    }
    /* For threads that wait for a token that never comes. */
    poise_event_signal(ring->turned);
    return peers->code;
}
