/*
 * Tests of the memory that processes of a node share: rings of messages, and
 * finding out who shares. Ranks are threads of this process, which may open
 * its own files and read its own memory like another one's.
 */
#include "comm/share.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define LINES 64
#define RANKS 3

/* ---- a ring ------------------------------------------------------------- */

struct pipe {
    struct comm_ring *ring;
    struct comm_ring_writer writer;
    struct comm_ring_reader reader;
};

static struct pipe pipe_make(void)
{
    struct comm_ring *ring = NULL;
    assert_int_equal(
        posix_memalign((void **)&ring, COMM_LINE, comm_ring_bytes(LINES)), 0);
    memset(ring, 0, comm_ring_bytes(LINES));
    return (struct pipe){.ring = ring,
                         .writer = {.ring = ring, .lines = LINES},
                         .reader = {.ring = ring, .lines = LINES}};
}

/* Message `number`: its length, and what it consists of. */
static size_t length_of(uint64_t number)
{
    return (size_t)(poise_hash_u64(number) % (comm_ring_longest(LINES) + 1));
}

static bool write_one(struct comm_ring_writer *writer, uint64_t number)
{
    size_t len = length_of(number);
    unsigned char *room = comm_ring_room(writer, len);
    if (!room) {
        return false;
    }
    memset(room, (int)(number % 255 + 1), len);
    comm_ring_publish(writer,
                      number % 3 ? COMM_RING_MESSAGE : COMM_RING_CONTROL, len);
    return true;
}

/* Whether a message was there; it is right. */
static bool read_one(struct comm_ring_reader *reader, uint64_t number)
{
    enum comm_ring_kind kind;
    size_t len;
    const unsigned char *data = comm_ring_peek(reader, &kind, &len);
    if (!data) {
        return false;
    }
    assert_int_equal(len, length_of(number));
    assert_int_equal(kind, number % 3 ? COMM_RING_MESSAGE : COMM_RING_CONTROL);
    assert_int_equal((uintptr_t)data % sizeof(uint64_t), 0);
    for (size_t i = 0; i < len; i++) {
        assert_int_equal(data[i], number % 255 + 1);
    }
    comm_ring_consume(reader, len);
    return true;
}

static void test_order(void **state)
{
    (void)state;
    struct pipe pipe = pipe_make();
    uint64_t written = 0, read = 0;
    assert_false(read_one(&pipe.reader, 0));
    while (read < 20000) {
        /* Fill it, empty a part of it. */
        while (write_one(&pipe.writer, written)) {
            written++;
        }
        assert_true(written > read);
        uint64_t until = read + 1 + poise_hash_u64(read) % (written - read);
        while (read < until) {
            assert_true(read_one(&pipe.reader, read));
            read++;
        }
    }
    while (read < written) {
        assert_true(read_one(&pipe.reader, read++));
    }
    assert_false(read_one(&pipe.reader, read));
    free(pipe.ring);
}

/* However little the reader tells, an empty ring has room for the longest. */
static void test_room(void **state)
{
    (void)state;
    for (size_t len = 0; len <= comm_ring_longest(LINES); len += 50) {
        struct pipe pipe = pipe_make();
        for (int i = 0; i < 500; i++) {
            size_t now = i % 2 ? len : comm_ring_longest(LINES), got;
            enum comm_ring_kind kind;
            assert_non_null(comm_ring_room(&pipe.writer, now));
            comm_ring_publish(&pipe.writer, COMM_RING_MESSAGE, now);
            assert_non_null(comm_ring_peek(&pipe.reader, &kind, &got));
            assert_int_equal(got, now);
            comm_ring_consume(&pipe.reader, got);
        }
        free(pipe.ring);
    }
}

static void *write_all(void *arg)
{
    struct pipe *pipe = arg;
    struct poise_backoff backoff = {0};
    for (uint64_t i = 0; i < 20000; i++) {
        while (!write_one(&pipe->writer, i)) {
            poise_backoff_wait(&backoff);
        }
        backoff.rounds = 0;
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct pipe pipe = pipe_make();
    struct poise_backoff backoff = {0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_all, &pipe), 0);
    for (uint64_t i = 0; i < 20000; i++) {
        while (!read_one(&pipe.reader, i)) {
            poise_backoff_wait(&backoff);
        }
        backoff.rounds = 0;
    }
    pthread_join(thread, NULL);
    free(pipe.ring);
}

/* ---- a doorbell -------------------------------------------------------------
 */

static struct comm_doorbell doorbell;
static uint32_t news; /* atomic */

static void *ring_often(void *arg)
{
    (void)arg;
    for (int i = 0; i < 1000; i++) {
        while (__atomic_load_n(&news, __ATOMIC_ACQUIRE)) {
            sched_yield();
        }
        __atomic_store_n(&news, 1, __ATOMIC_SEQ_CST);
        if (comm_doorbell_is_needed(&doorbell)) {
            comm_doorbell_ring(&doorbell);
        }
    }
    return NULL;
}

/* No news are slept through: the sleeps are so long that the time limit of
 * the test would tell. */
static void test_bell(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ring_often, NULL), 0);
    for (int i = 0; i < 1000; i++) {
        while (!__atomic_load_n(&news, __ATOMIC_SEQ_CST)) {
            uint32_t seen = comm_doorbell_prepare(&doorbell);
            if (__atomic_load_n(&news, __ATOMIC_SEQ_CST)) {
                comm_doorbell_cancel(&doorbell);
            } else {
                comm_doorbell_wait(&doorbell, seen, UINT64_C(600000000000));
            }
        }
        __atomic_store_n(&news, 0, __ATOMIC_RELEASE);
    }
    pthread_join(thread, NULL);
    assert_false(comm_doorbell_is_needed(&doorbell));
}

/* ---- who shares --------------------------------------------------------- */

struct part {
    struct poise_world *world;
    pthread_t thread;
    int peers, err;
    int readable; /* peers, as was found out */
    int one_way;  /* that do not read me just because I read them */
    int read;     /* peers, with success */
    int wrong;
};

/* A number to each peer, through its ring and out of the other's memory.
 * Threads cannot fail a test themselves. */
static void talk(struct part *part, struct comm_share *share)
{
    int me = poise_world_rank(part->world);
    for (int i = 0; i < share->count; i++) {
        struct comm_peer *peer = &share->peers[i];
        uint64_t *room = comm_ring_room(&peer->to, 2 * sizeof *room);
        room[0] = (uint64_t)me;
        room[1] = (uint64_t)(uintptr_t)&part->world;
        comm_ring_publish(&peer->to, COMM_RING_MESSAGE, 2 * sizeof *room);
        part->readable += peer->readable;
        part->one_way += peer->readable != peer->reads_me;
    }
    for (int i = 0; i < share->count; i++) {
        struct comm_peer *peer = &share->peers[i];
        struct poise_world *theirs = NULL;
        enum comm_ring_kind kind;
        size_t len;
        const uint64_t *got;
        while (!(got = comm_ring_peek(&peer->from, &kind, &len))) {
            sched_yield();
        }
        part->wrong += share->peer_of[peer->rank] != i || len != 16 ||
                       got[0] != (uint64_t)peer->rank;
        if (peer->readable && comm_share_read(peer, got[1], (void *)&theirs,
                                              sizeof theirs) == 0) {
            part->wrong += poise_world_rank(theirs) != peer->rank;
            part->read++;
        }
        part->wrong += comm_share_read(peer, 8, (void *)&theirs, 8) >= 0;
    }
}

static void *take_part(void *arg)
{
    struct part *part = arg;
    struct comm_share share;
    part->err = comm_share_create(part->world, &share);
    if (part->err == 0) {
        part->peers = share.count;
        talk(part, &share);
        poise_world_barrier(part->world);
        comm_share_free(&share);
    }
    return NULL;
}

/* `k` > 0: that call of its kind fails. */
static void run_parts(struct part *parts, const char *topology,
                      enum poise_fault fault, uint64_t k)
{
    struct poise_world *worlds[RANKS];
    struct poise_local_options options = {.topology = topology};
    assert_int_equal(poise_world_create_local(RANKS, &options, worlds), 0);
    poise_fault_arm(fault, k, ENOMEM, false);
    for (int i = 0; i < RANKS; i++) {
        parts[i] = (struct part){.world = worlds[i]};
        assert_int_equal(
            pthread_create(&parts[i].thread, NULL, take_part, &parts[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(parts[i].thread, NULL);
    }
    poise_fault_arm(fault, 0, 0, false);
    for (int i = 0; i < RANKS; i++) {
        poise_world_destroy(worlds[i]);
    }
}

static int descriptors(void)
{
    int count = 0;
    for (int i = 0; i < 200; i++) {
        struct stat st;
        count += fstat(i, &st) == 0;
    }
    return count;
}

static void test_share(void **state)
{
    (void)state;
    static const struct {
        const char *allowed, *topology;
        int peers[RANKS];
        bool readable;
    } cases[] = {
        {NULL, NULL, {2, 2, 2}, true},    {"ring", NULL, {2, 2, 2}, false},
        {"mpi", NULL, {0, 0, 0}, false},  {NULL, "1x3x1", {0, 0, 0}, false},
        {NULL, "1x2x1", {1, 1, 0}, true},
    };
    int open = descriptors();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct part parts[RANKS];
        if (cases[i].allowed) {
            setenv("POISE_WIRE", cases[i].allowed, 1);
        }
        run_parts(parts, cases[i].topology, POISE_FAULT_OPEN, 0);
        unsetenv("POISE_WIRE");
        int all = 0;
        for (int j = 0; j < RANKS; j++) {
            assert_int_equal(parts[j].err, 0);
            all += parts[j].peers;
            assert_int_equal(parts[j].wrong, 0);
            assert_int_equal(parts[j].one_way, 0);
            assert_int_equal(parts[j].readable,
                             cases[i].readable ? parts[j].peers : 0);
            assert_int_equal(parts[j].read, parts[j].readable);
        }
        assert_int_equal(all, cases[i].peers[0] + cases[i].peers[1] +
                                  cases[i].peers[2]);
        assert_int_equal(descriptors(), open);
    }
}

/* Whatever fails, all know the same: nobody is left waiting, and who shares
 * shares both ways. */
static void test_faults(void **state)
{
    (void)state;
    static const enum poise_fault faults[] = {
        POISE_FAULT_ALLOC, POISE_FAULT_OPEN, POISE_FAULT_READ};
    int open = descriptors();
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        for (uint64_t k = 1; k < 40; k++) {
            struct part parts[RANKS];
            run_parts(parts, NULL, faults[i], k);
            assert_int_equal(parts[0].err < 0, parts[1].err < 0);
            assert_int_equal(parts[0].err < 0, parts[2].err < 0);
            for (int j = 0; j < RANKS; j++) {
                assert_int_equal(parts[j].wrong, 0);
            }
            int sum = parts[0].peers + parts[1].peers + parts[2].peers;
            assert_int_equal(sum % 2, 0);
            assert_int_equal(descriptors(), open);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),   cmocka_unit_test(test_room),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_bell),
        cmocka_unit_test(test_share),   cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
