/* What goes wrong on the wire: nothing wrong is ever delivered, and every end
 * says so. */
#include "ends.h"

#include <errno.h>

/* Cut anywhere: what was delivered is right, and a new connection goes on
 * with the same caches. */
static void test_cut(void **state)
{
    unsigned char *data = data_make(LEN / 4, DATA_MIXED, 12);
    struct end a = {0}, b = {0};
    struct poise_rng rng;

    (void)state;
    poise_rng_seed(&rng, 12);
    make_store(&a, 0);
    make_store(&b, 16);
    for (int round = 0; round < 40; round++) {
        size_t stop = poise_rng_below(&rng, 60000);
        connect_end(&a, NULL, 64);
        connect_end(&b, NULL, 64);
        run(&a, &b, NULL);
        assert_int_equal(poise_dedup_peer_send(a.peer, 1, data, LEN / 4), 0);
        assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
        while (b.arrived < stop) {
            speak(&a, &b);
            speak(&b, &a);
            if (b.arrived == b.coming.len && a.arrived == a.coming.len) {
                break;
            }
            assert_int_equal(hear(&b, &rng), 0);
            assert_int_equal(hear(&a, &rng), 0);
        }
        assert_true(b.received[1].len <= LEN / 4);
        if (b.received[1].len > 0) {
            assert_memory_equal(b.received[1].data, data, b.received[1].len);
        }
        disconnect(&a);
        disconnect(&b);
        /* Someone forgets everything now and then. */
        if (round % 8 == 7) {
            struct end *end = round % 16 == 7 ? &a : &b;
            poise_dedup_store_close(end->store);
            make_store(end, 16);
        }
    }
    connect_end(&a, NULL, 64);
    connect_end(&b, NULL, 64);
    transfer(&a, &b, data, LEN / 4, &rng);
    close_end(&a);
    close_end(&b);
    free(data);
}

/* Bytes of a connection with one of them changed: an error, or more is asked
 * for; nothing wrong is delivered. Only what the end said of itself first may
 * pass. */
static void test_altered(void **state)
{
    enum { SHORT = 60000, ROUNDS = 300 };
    unsigned char *data = data_make(SHORT, DATA_MIXED, 13);
    struct end a = {0}, b = {0};
    struct poise_rng rng;
    unsigned stopped = 0;

    (void)state;
    poise_rng_seed(&rng, 13);
    make_store(&a, 0);
    for (int round = 0; round < ROUNDS; round++) {
        make_store(&b, 0);
        connect_end(&a, NULL, 0);
        connect_end(&b, NULL, 0);
        speak(&b, &a);
        assert_int_equal(hear(&a, NULL), 0);
        assert_int_equal(poise_dedup_peer_send(a.peer, 1, data, SHORT), 0);
        assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
        speak(&a, &b);
        size_t where = poise_rng_below(&rng, b.coming.len);
        b.coming.data[where] ^= (char)(1 << poise_rng_below(&rng, 8));
        int code = 0;
        while (code == 0 && b.arrived < b.coming.len) {
            code = hear(&b, &rng);
        }
        assert_true(code == 0 || code == -EBADMSG || code == -EPROTO);
        stopped += b.received[1].len < SHORT;
        assert_true(b.received[1].len <= SHORT);
        if (b.received[1].len > 0) {
            assert_memory_equal(b.received[1].data, data, b.received[1].len);
        }
        disconnect(&a);
        close_end(&b);
    }
    assert_true(stopped > ROUNDS * 9 / 10);
    close_end(&a);
    free(data);
}

/* Messages that make no sense in themselves. */
static void test_nonsense(void **state)
{
    static const struct {
        unsigned char bytes[24];
        size_t len;
    } messages[] = {
        {{0}, 1},
        {{WIRE_OPS}, 1},
        {{WIRE_PAD, 63, 0}, 3},
        {{WIRE_PAD, 64, 2, 0}, 4},
        {{WIRE_PAD, 64, 0x81, 1, 0, 0, 0}, 7},
        {{WIRE_PAD, 0x81, 0x80, 0x10, 0}, 5},
        {{WIRE_PAD, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0},
         11},
        {{WIRE_HELLO, 1}, 2},
        {{WIRE_ACK, 1}, 2},
        {{WIRE_REQUEST, 0, 0}, 3},
        {{WIRE_SUPPLY, 0, 0, 0}, 4},
        {{WIRE_STREAM, 0x80, 0x80, 1}, 4},
        {{WIRE_DATA, 1, 0}, 3},
        {{WIRE_DATA, 1, 9, 1, 2}, 5},
        {{WIRE_DATA, 2, 0xff, 0xff, 0x7f}, 5},
        {{WIRE_LITERAL, 0}, 2},
        {{WIRE_FILL, 4, 0}, 3},
        {{WIRE_FILL, 4, 5, 1, 2, 3, 4, 5}, 8},
        {{WIRE_FILL, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 1}, 10},
        {{WIRE_DELTA, 1, 1, 4, 1, 9, 9, 9}, 8},
        {{WIRE_DELTA, 0, 1, 4, 0, 1, 2, 3, 4}, 9},
        {{WIRE_GROUP, 1, 2}, 3},
        {{WIRE_FINGERPRINTS, 0xff, 0xff, 0xff, 0x7f, 1}, 6},
        {{WIRE_ITEM_WANTED, 0, 1, 1}, 4},
        {{WIRE_ITEM_PRINTS, 0, 0, 1, 1, 2, 3, 4, 5}, 9},
        {{WIRE_ITEM_LACKS, 0, 0, 1, 1}, 5},
    };

    (void)state;
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        struct end a = {0}, b = {0};
        make_store(&a, 0);
        make_store(&b, 0);
        connect_end(&a, NULL, 0);
        connect_end(&b, NULL, 0);
        run(&a, &b, NULL);
        poise_buf_append(&a.peer->blocks.raw, messages[i].bytes,
                         messages[i].len);
        assert_int_equal(wire_blocks_close(&a.peer->blocks), 0);
        speak(&a, &b);
        assert_int_equal(hear(&b, NULL), -EBADMSG);
        /* It stays so. */
        assert_int_equal(poise_dedup_peer_feed(b.peer, NULL, 0), -EBADMSG);
        assert_int_equal(poise_dedup_peer_send(b.peer, 1, "x", 1), -EBADMSG);
        close_end(&a);
        close_end(&b);
    }
}

/* All of a group that has no data is asked for. */
static void test_empty_group(void **state)
{
    static const unsigned char request[] = {WIRE_REQUEST, 0, 0};
    struct end a = {0}, b = {0};

    (void)state;
    make_store(&a, 0);
    make_store(&b, 0);
    connect_end(&a, NULL, 0);
    connect_end(&b, NULL, 0);
    run(&a, &b, NULL);
    assert_int_equal(poise_dedup_peer_end(a.peer, 1), 0);
    assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
    poise_buf_append(&b.peer->blocks.raw, request, sizeof request);
    assert_int_equal(wire_blocks_close(&b.peer->blocks), 0);
    speak(&b, &a);
    assert_int_equal(hear(&a, NULL), 0);
    assert_int_equal(poise_dedup_peer_stats(a.peer).repairs, 1);
    close_end(&a);
    close_end(&b);
}

static void test_too_early(void **state)
{
    struct end a = {0};

    (void)state;
    make_store(&a, 0);
    connect_end(&a, NULL, 0);
    assert_int_equal(poise_dedup_peer_send(a.peer, 1, "x", 1), -EAGAIN);
    close_end(&a);
}

/* Any piece of memory that is missing: an error, and no more. */
static void test_no_memory(void **state)
{
    enum { SHORT = 30000 };
    unsigned char *data = data_make(SHORT, DATA_MIXED, 14);
    bool struck = true;

    (void)state;
    for (uint64_t k = 1; struck; k += 1 + k / 16) {
        struct end a = {0}, b = {0};
        int code;
        make_store(&a, 0);
        make_store(&b, 0);
        connect_end(&a, NULL, 0);
        connect_end(&b, NULL, 0);
        run(&a, &b, NULL);
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        code = poise_dedup_peer_send(a.peer, 1, data, SHORT);
        if (code == 0) {
            code = poise_dedup_peer_flush(a.peer);
        }
        for (int i = 0; i < 4 && code == 0; i++) {
            const void *bytes;
            struct end *from = i % 2 ? &b : &a, *to = i % 2 ? &a : &b;
            size_t len = poise_dedup_peer_output(from->peer, &bytes);
            code = poise_dedup_peer_feed(to->peer, bytes, len);
            poise_dedup_peer_took(from->peer, len);
        }
        struck = poise_fault_calls(POISE_FAULT_ALLOC) >= k;
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        if (b.received[1].len > 0) {
            assert_memory_equal(b.received[1].data, data, b.received[1].len);
        }
        assert_true(code == -ENOMEM ||
                    (code == 0 && b.received[1].len == SHORT));
        close_end(&a);
        close_end(&b);
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),       cmocka_unit_test(test_altered),
        cmocka_unit_test(test_nonsense),  cmocka_unit_test(test_empty_group),
        cmocka_unit_test(test_too_early), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
