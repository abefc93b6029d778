/* Updates out of order and unproved: each comes once, what was wrong is
 * corrected, and at the end all is what was sent, where it was sent. */
#include "unordered.h"

/* ---- order -------------------------------------------------------------- */

/* The first update has to be asked for; the second does not wait for it. */
static void check_overtaking(bool sender_knows)
{
    static const uint64_t unknown[] = {500}, known[] = {2, 3, 4};
    unsigned char tile[SIDE * SIDE * PIXEL];
    struct poise_dedup_piece piece = {
        .data = tile, .len = sizeof tile, .place = {0, 0, sizeof tile, 1}};
    struct end a = {0}, b = {0};

    make_store(&a, 0);
    make_store(&b, 0);
    know_tiles(&b, 1, 5);
    if (sender_knows) {
        know_tiles(&a, 1, 5);
        make_known(&b, &a);
    }
    connect_both(&a, &b);
    assert_int_equal(send_tiles(&a, &b, 1, unknown, 1), 1);
    assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
    /* In one group with it is something else, from where it goes on. */
    draw_tile(tile, sizeof tile, 1);
    assert_int_equal(poise_dedup_peer_send_piece(a.peer, 2, &piece), 0);
    assert_int_equal(send_tiles(&a, &b, 1, known, 3), 1);
    assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
    speak(&a, &b);
    assert_int_equal(hear(&b, NULL), 0);
    assert_false(b.records[1][0].is_there);
    assert_true(b.records[1][1].is_there && !b.records[1][1].is_wrong);
    assert_int_equal(poise_dedup_peer_final(b.peer, 1), 0);
    /* References are guessed beside what will be right. */
    assert_int_equal(poise_dedup_peer_stats(a.peer).by_run > 0, sender_knows);
    assert_int_equal(b.peer->receiver.guessed > 0, sender_knows);
    run(&a, &b, NULL);
    check_all(&b);
    assert_int_equal(b.late, 1);
    assert_int_equal(poise_dedup_peer_stats(b.peer).late, 1);
    assert_int_equal(poise_dedup_peer_final(b.peer, 1), 2);
    close_end(&a);
    close_end(&b);
}

static void test_overtaking(void **state)
{
    (void)state;
    check_overtaking(false);
    check_overtaking(true);
}

/* Pieces of the stream are a fence: no update overtakes them. */
static void test_fence(void **state)
{
    static const uint64_t known[] = {1, 2};
    unsigned char tile[SIDE * SIDE * PIXEL];
    struct poise_dedup_piece piece = {
        .data = tile, .len = sizeof tile, .place = {0, 0, sizeof tile, 1}};
    struct end a = {0}, b = {0};

    (void)state;
    make_store(&a, 0);
    make_store(&b, 0);
    know_tiles(&b, 1, 5);
    connect_both(&a, &b);
    draw_tile(tile, sizeof tile, 500);
    assert_int_equal(poise_dedup_peer_send_piece(a.peer, 1, &piece), 0);
    assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
    for (uint32_t stream = 1; stream < 3; stream++) {
        assert_int_equal(send_tiles(&a, &b, stream, known, 2), 1);
    }
    assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
    speak(&a, &b);
    assert_int_equal(hear(&b, NULL), 0);
    assert_int_equal(b.drawn, 0);
    assert_false(b.records[1][0].is_there);
    assert_true(b.records[2][0].is_there);
    piece.place.x = sizeof tile;
    assert_int_equal(poise_dedup_peer_send_piece(a.peer, 1, &piece), 0);
    assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
    run(&a, &b, NULL);
    assert_int_equal(b.drawn, 2);
    assert_int_equal(b.drawn_at, sizeof tile);
    check_all(&b);
    close_end(&a);
    close_end(&b);
}

/* ---- wrong guesses ------------------------------------------------------ */

/* Fingerprints that are far too short: much is wrong at first. */
static void test_collisions(void **state)
{
    static const uint32_t widths[] = {8, 10, 12};

    (void)state;
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        struct end a = {0}, b = {0};
        struct poise_rng rng;
        poise_rng_seed(&rng, 20 + w);
        make_store(&a, 40);
        make_store(&b, widths[w]);
        know_tiles(&b, 10000, 600);
        /* The sender believes in what is not so, and in what is. */
        know_tiles(&a, 10300, 500);
        connect_both(&a, &b);
        for (int i = 0; i < UPDATES; i++) {
            uint64_t ids[MOST], at = 10000 + poise_rng_below(&rng, 1200);
            size_t count = 1 + poise_rng_below(&rng, MOST);
            for (size_t k = 0; k < count; k++) {
                ids[k] = poise_rng_below(&rng, 3) == 0
                             ? 20000 + poise_rng_below(&rng, 2000)
                             : at + k;
            }
            assert_int_equal(send_tiles(&a, &b, 1, ids, count), 1);
            if (poise_rng_below(&rng, 2) == 0) {
                assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
                speak(&a, &b);
                speak(&b, &a);
                assert_int_equal(hear(&b, &rng), 0);
                assert_int_equal(hear(&a, &rng), 0);
            }
        }
        assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
        run(&a, &b, &rng);
        check_all(&b);
        assert_true(b.wrong > 0 && b.late > 0);
        assert_int_equal(b.guessed + b.proved, UPDATES);
        assert_int_equal(poise_dedup_peer_stats(b.peer).corrected, b.wrong);
        assert_int_equal(poise_dedup_peer_stats(b.peer).guessed, b.guessed);
        assert_int_equal(poise_dedup_peer_final(b.peer, 1), UPDATES);
        close_end(&a);
        close_end(&b);
    }
}

/* Who says that updates are superseded is not bothered with them. */
static void test_superseded(void **state)
{
    struct end a = {0}, b = {0};
    struct poise_dedup_peer_stats stats;

    (void)state;
    make_store(&a, 40);
    make_store(&b, 8);
    know_tiles(&b, 10000, 600);
    connect_both(&a, &b);
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t ids[] = {20000 + 2 * i, 20001 + 2 * i};
        assert_int_equal(send_tiles(&a, &b, 1, ids, 2), 1);
    }
    assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
    speak(&a, &b);
    assert_int_equal(hear(&b, NULL), 0);
    assert_true(b.wrong > 0 && b.guessed < 100);
    assert_int_equal(poise_dedup_peer_supersede(b.peer, 1, 90), 0);
    assert_int_equal(poise_dedup_peer_supersede(b.peer, 1, 50), 0);
    assert_int_equal(poise_dedup_peer_supersede(b.peer, 0, 50), -EINVAL);
    run(&a, &b, NULL);
    stats = poise_dedup_peer_stats(b.peer);
    assert_true(stats.superseded > 0);
    assert_int_equal(poise_dedup_peer_final(b.peer, 1), 100);
    for (int i = 90; i < 100; i++) {
        const struct record *record = &b.records[1][i];
        assert_true(record->is_there);
        assert_memory_equal(record->received, record->sent, record->len);
    }
    close_end(&a);
    close_end(&b);
}

/* ---- together ----------------------------------------------------------- */

/* Ordered and unordered streams in one connection, both ways at once. */
static void test_streams(void **state)
{
    struct end a = {0}, b = {0}, *ends[] = {&a, &b};
    struct poise_rng rng;

    (void)state;
    poise_rng_seed(&rng, 30);
    make_store(&a, 40);
    make_store(&b, 12);
    know_tiles(&a, 10000, 300);
    know_tiles(&b, 10100, 300);
    connect_both(&a, &b);
    allow_unordered(&a, &b, 1);
    allow_unordered(&a, &b, 2); /* but not the third */
    for (int i = 0; i < 600; i++) {
        struct end *from = ends[i % 2], *to = ends[1 - i % 2];
        uint32_t stream = (uint32_t)poise_rng_below(&rng, STREAMS);
        uint64_t ids[MOST], at = 10000 + poise_rng_below(&rng, 500);
        size_t count = 1 + poise_rng_below(&rng, MOST);
        if (stream == PLAIN) {
            unsigned char bytes[3000];
            data_fill(bytes, sizeof bytes, DATA_WORDS, &rng);
            poise_buf_append(&to->plain_sent, bytes, sizeof bytes);
            assert_int_equal(
                poise_dedup_peer_send(from->peer, PLAIN, bytes, sizeof bytes),
                0);
        } else {
            for (size_t k = 0; k < count; k++) {
                ids[k] = at + k;
            }
            assert_int_equal(send_tiles(from, to, stream, ids, count),
                             from == &a || stream != 3);
        }
        if (poise_rng_below(&rng, 3) == 0) {
            assert_int_equal(poise_dedup_peer_flush(from->peer), 0);
            speak(from, to);
            assert_int_equal(hear(to, &rng), 0);
        }
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(poise_dedup_peer_end(ends[i]->peer, PLAIN), 0);
        assert_int_equal(poise_dedup_peer_end(ends[i]->peer, 1), 0);
        assert_int_equal(poise_dedup_peer_flush(ends[i]->peer), 0);
    }
    run(&a, &b, &rng);
    for (int i = 0; i < 2; i++) {
        check_all(ends[i]);
        assert_int_equal(ends[i]->ended, 2);
        assert_true(ends[i]->guessed > 0);
        assert_int_equal(ends[i]->plain.len, ends[i]->plain_sent.len);
        assert_memory_equal(ends[i]->plain.data, ends[i]->plain_sent.data,
                            ends[i]->plain.len);
    }
    assert_true(a.drawn > 0 && b.drawn == 0);
    assert_true(b.late > 0);
    close_end(&a);
    close_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overtaking), cmocka_unit_test(test_fence),
        cmocka_unit_test(test_collisions), cmocka_unit_test(test_superseded),
        cmocka_unit_test(test_streams),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
