/* Room flow: memory that two nodes of a host share (src/flow/link/ring.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "flow/link/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

struct pair {
    struct flow_ring *to, *from;
    struct flow_ring_offer offer;
};

static void pair_make(struct pair *pair)
{
    assert_int_equal(flow_ring_create(&pair->to, &pair->offer), 0);
    assert_int_equal(flow_ring_open(&pair->offer, &pair->from), 0);
}

static void pair_free(struct pair *pair)
{
    flow_ring_close(pair->to);
    flow_ring_close(pair->from);
}

/* Message number `n`: its length, and each of its bytes, follow from that. */
static struct flow_head head_of(uint64_t n)
{
    uint64_t most = n % 7 == 0 ? FLOW_RING_LONGEST : 64;
    return (struct flow_head){.kind = FLOW_BLOCK,
                              .version = (int64_t)n,
                              .len = poise_hash_u64(n) % (most + 1)};
}

static bool put(struct flow_ring *ring, uint64_t n)
{
    unsigned char data[FLOW_RING_LONGEST];
    struct flow_head head = head_of(n);
    memset(data, (int)(n & 0xff), head.len);
    return flow_ring_put(ring, &head, data);
}

static void check(uint64_t n, const struct flow_head *head,
                  struct flow_made *made)
{
    struct flow_head is = head_of(n);
    assert_memory_equal(head, &is, sizeof is);
    assert_int_equal(made != NULL, is.len > 0);
    const unsigned char *data = made ? flow_made_data(made) : NULL;
    for (uint64_t i = 0; i < is.len; i++) {
        assert_int_equal(data[i], n & 0xff);
    }
    free(made);
}

/* All that is put comes out, in order, wherever in the ring it lies; when it is
 * full it says so, and goes on when there is room. */
static void test_order(void **state)
{
    struct pair pair;
    struct flow_head head;
    struct flow_made *made;
    uint64_t in = 0, out = 0, full = 0;
    (void)state;
    pair_make(&pair);
    assert_false(flow_ring_has(pair.from));
    for (uint64_t round = 0; out < 20000; round += 2) {
        uint64_t burst = poise_hash_u64(round) % 40;
        while (burst-- > 0 && put(pair.to, in)) {
            in++;
        }
        full += burst != UINT64_MAX;
        assert_int_equal(flow_ring_has(pair.from), in > out);
        for (burst = poise_hash_u64(round + 1) % 40; burst > 0 && out < in;
             burst--) {
            assert_int_equal(flow_ring_take(pair.from, &head, &made), 1);
            check(out++, &head, made);
        }
    }
    assert_true(full > 100);
    while (out < in) {
        assert_int_equal(flow_ring_take(pair.from, &head, &made), 1);
        check(out++, &head, made);
    }
    assert_int_equal(flow_ring_take(pair.from, &head, &made), 0);
    head = (struct flow_head){.kind = FLOW_BLOCK, .len = FLOW_RING_LONGEST + 1};
    assert_false(flow_ring_put(pair.to, &head, NULL));
    pair_free(&pair);
}

/* Nobody writes into memory that nobody opened. */
static void test_not_opened(void **state)
{
    struct flow_ring *ring;
    struct flow_ring_offer offer;
    (void)state;
    assert_int_equal(flow_ring_create(&ring, &offer), 0);
    assert_false(put(ring, 1));
    flow_ring_close(ring);
}

/* What is offered may be something else here, or nothing. */
static void test_other_things(void **state)
{
    struct pair pair;
    struct flow_ring *ring = NULL;
    (void)state;
    pair_make(&pair);
    struct flow_ring_offer bad = pair.offer;
    bad.token[1]++;
    assert_int_equal(flow_ring_open(&bad, &ring), -ENODEV);
    bad = pair.offer;
    bad.process = 0;
    assert_int_equal(flow_ring_open(&bad, &ring), -ENODEV);
    bad = pair.offer;
    bad.descriptor = -1;
    assert_int_equal(flow_ring_open(&bad, &ring), -ENODEV);
    /* A file, memory that could become shorter, and such of another size. */
    FILE *file = tmpfile();
    int soft = memfd_create("soft", MFD_CLOEXEC);
    int small = memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_non_null(file);
    assert_int_equal(ftruncate(small, 4096), 0);
    assert_int_equal(
        fcntl(small, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
        0);
    const int others[] = {fileno(file), soft, small};
    for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
        bad = pair.offer;
        bad.descriptor = others[i];
        assert_int_equal(flow_ring_open(&bad, &ring), -ENODEV);
    }
    fclose(file);
    close(soft);
    close(small);
    pair_free(&pair);
}

/* Bytes that no writer wrote: refused, or taken as a message with fewer bytes
 * than there are; never more. */
static void test_damaged(void **state)
{
    (void)state;
    unsigned refused = 0;
    for (uint64_t round = 0; round < 3000; round++) {
        struct pair pair;
        struct flow_head head;
        struct flow_made *made = NULL;
        char path[64];
        assert_int_equal(flow_ring_create(&pair.to, &pair.offer), 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", pair.offer.descriptor);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        assert_int_equal(flow_ring_open(&pair.offer, &pair.from), 0);
        assert_true(put(pair.to, round) && put(pair.to, round + 1));
        off_t end = lseek(fd, 0, SEEK_END);
        for (unsigned i = 0; i < 4; i++) {
            /* Where positions lie, or the first heads. */
            uint64_t word = poise_hash_u64(8 * round + i);
            off_t at = (off_t)(word % 60) * 8;
            word = round % 2 ? poise_hash_u64(word) : word % 100000;
            assert_true(at < end);
            assert_int_equal(pwrite(fd, &word, sizeof word, at), sizeof word);
        }
        int code = 1;
        for (unsigned i = 0; code > 0 && i < 100; i++) {
            code = flow_ring_take(pair.from, &head, &made);
            assert_true(code <= 0 || head.len <= FLOW_RING_LONGEST);
            free(made);
        }
        refused += code == -EPROTO;
        close(fd);
        pair_free(&pair);
    }
    assert_true(refused > 100);
}

/* ---- who looks, and who is told -------------------------------------------
 */

enum { MESSAGES = 30000 };

struct talk {
    struct pair pair;
    int knock[2];
};

static void *writer(void *arg)
{
    struct talk *talk = arg;
    for (uint64_t n = 0; n < MESSAGES; n++) {
        while (!put(talk->pair.to, n)) {
            sched_yield();
        }
        if (flow_ring_knocks(talk->pair.to)) {
            assert_int_equal(write(talk->knock[1], "", 1), 1);
        }
    }
    return NULL;
}

/* Who reads sleeps until it is told, with a look after it said so: no message
 * is left lying (else this test does not end). */
static void test_knocks(void **state)
{
    struct talk talk;
    struct flow_head head;
    struct flow_made *made;
    pthread_t thread;
    uint64_t out = 0, slept = 0;
    char byte;
    (void)state;
    pair_make(&talk.pair);
    assert_int_equal(pipe(talk.knock), 0);
    assert_int_equal(pthread_create(&thread, NULL, writer, &talk), 0);
    while (out < MESSAGES) {
        flow_ring_look(talk.pair.from, true);
        for (unsigned i = 0; i < 50; i++) {
            while (flow_ring_take(talk.pair.from, &head, &made) > 0) {
                check(out++, &head, made);
            }
        }
        flow_ring_look(talk.pair.from, false);
        while (flow_ring_take(talk.pair.from, &head, &made) > 0) {
            check(out++, &head, made);
        }
        if (out < MESSAGES) {
            slept++;
            assert_int_equal(read(talk.knock[0], &byte, 1), 1);
        }
    }
    pthread_join(thread, NULL);
    assert_true(slept < MESSAGES);
    close(talk.knock[0]);
    close(talk.knock[1]);
    pair_free(&talk.pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),        cmocka_unit_test(test_not_opened),
        cmocka_unit_test(test_other_things), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_knocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
