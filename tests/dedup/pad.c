/* What the bytes of a connection tell of what was known at its other end, and
 * how padding hides it. */
#include "ends.h"

#include <errno.h>

enum { SECRET = 3000, PAD = 4096 };

/* Bytes that went each way, and how often something did. */
struct seen {
    uint64_t out, in;
    unsigned turns;
};

static void connect_padded(struct end *end, uint32_t pad)
{
    struct poise_dedup_peer_options options = {.store = end->store,
                                               .pad_bytes = pad,
                                               .packs_in_thread = true,
                                               .deliver = deliver,
                                               .ended = ended,
                                               .arg = end};

    assert_int_equal(poise_dedup_peer_create(&options, &end->peer), 0);
}

/* Send in a connection of its own, over which both have met already; the bytes
 * after that are what somebody sees who looks at the link. */
static struct seen look(struct end *a, struct end *b, const void *data,
                        size_t len, uint32_t pad)
{
    struct seen seen = {0};

    connect_padded(a, pad);
    connect_padded(b, 0);
    run(a, b, NULL);
    a->coming.len = b->coming.len = a->arrived = b->arrived = 0;
    assert_int_equal(poise_dedup_peer_send(a->peer, 1, data, len), 0);
    assert_int_equal(poise_dedup_peer_end(a->peer, 1), 0);
    assert_int_equal(poise_dedup_peer_flush(a->peer), 0);
    do {
        speak(a, b);
        seen.turns += b->arrived < b->coming.len;
        assert_int_equal(hear(b, NULL), 0);
        speak(b, a);
        seen.turns += a->arrived < a->coming.len;
        assert_int_equal(hear(a, NULL), 0);
        if (pad) {
            assert_int_equal(a->coming.len % pad, 0);
            assert_int_equal(b->coming.len % pad, 0);
        }
        speak(a, b);
    } while (b->arrived < b->coming.len);
    assert_int_equal(b->received[1].len, len);
    assert_memory_equal(b->received[1].data, data, len);
    seen.out = b->coming.len;
    seen.in = a->coming.len;
    disconnect(a);
    disconnect(b);
    return seen;
}

/* A secret went through these caches; then somebody guesses it, right and
 * wrong, and the caches forget nothing meanwhile. */
static void guess(uint32_t pad, bool sender_knows, struct seen *right,
                  struct seen *wrong)
{
    unsigned char *secret = data_make(SECRET, DATA_RANDOM, 71);
    unsigned char *other = data_make(SECRET, DATA_RANDOM, 72);
    struct end a = {0}, b = {0};

    assert_true(secret && other);
    make_store(&a, 0);
    make_store(&b, 0);
    look(&a, &b, secret, SECRET, pad);
    if (!sender_knows) {
        poise_dedup_store_close(a.store);
        make_store(&a, 0);
    }
    *wrong = look(&a, &b, other, SECRET, pad);
    *right = look(&a, &b, secret, SECRET, pad);
    close_end(&a);
    close_end(&b);
    free(secret);
    free(other);
}

static void test_guess(void **state)
{
    struct seen right, wrong;

    (void)state;
    for (int knows = 0; knows < 2; knows++) {
        /* Without: as plain as can be. */
        guess(0, knows, &right, &wrong);
        assert_in_range(right.out, 20, 250);
        assert_in_range(wrong.out, SECRET, SECRET + 300);
        /* With: alike. */
        guess(PAD, knows, &right, &wrong);
        assert_int_equal(right.out, PAD);
        assert_int_equal(wrong.out, PAD);
        assert_int_equal(right.in, PAD);
        assert_int_equal(wrong.in, PAD);
        assert_int_equal(right.turns, wrong.turns);
    }
}

/* All sizes, all kinds of data, bytes that come in any portions. */
static void test_sizes(void **state)
{
    static const uint32_t pads[] = {POISE_DEDUP_PAD_LEAST, 127, 128, 1000, 4096,
                                    POISE_DEDUP_PAD_MOST};
    struct poise_rng rng;

    (void)state;
    poise_rng_seed(&rng, 73);
    for (size_t i = 0; i < sizeof pads / sizeof *pads; i++) {
        unsigned char *data = data_make(LEN / 4, DATA_MIXED, 74 + i);
        struct end a = {0}, b = {0};
        uint64_t before;
        make_store(&a, 0);
        make_store(&b, 0);
        connect_padded(&a, pads[i]);
        connect_padded(&b, i % 2 ? pads[0] : 0);
        run(&a, &b, NULL);
        before = a.peer->padded;
        for (size_t len = 1; len <= LEN / 4; len = 3 * len + i) {
            transfer(&a, &b, data, len, &rng);
            assert_int_equal((a.peer->blocks.bytes_out - before) % pads[i], 0);
            assert_int_equal(
                (b.peer->blocks.bytes_out - b.peer->padded) % pads[i], 0);
            transfer(&b, &a, data, len, NULL);
        }
        close_end(&a);
        close_end(&b);
        free(data);
    }
}

/* Who cannot pad, or would in a way that makes no sense. */
static void test_refused(void **state)
{
    struct end a = {0}, b = {0};
    struct poise_dedup_peer_options options = {.deliver = deliver, .arg = &a};

    (void)state;
    make_store(&a, 0);
    make_store(&b, 0);
    options.store = a.store;
    options.pad_bytes = POISE_DEDUP_PAD_LEAST - 1;
    assert_int_equal(poise_dedup_peer_create(&options, &a.peer), -EINVAL);
    options.pad_bytes = POISE_DEDUP_PAD_MOST + 1;
    assert_int_equal(poise_dedup_peer_create(&options, &a.peer), -EINVAL);
    connect_padded(&a, PAD);
    connect_padded(&b, 0);
    run(&a, &b, NULL);
    /* As an end from before there was padding. */
    a.peer->knows_padding = false;
    assert_int_equal(poise_dedup_peer_send(a.peer, 1, "secret", 6), 0);
    assert_int_equal(poise_dedup_peer_flush(a.peer), -EOPNOTSUPP);
    assert_non_null(strstr(poise_error_last()->why, "version"));
    close_end(&a);
    close_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guess),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
