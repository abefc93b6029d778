/* The wire: every byte arrives as it was sent, whatever the caches hold. */
#include "../share.h"
#include "../temporary.h"
#include "ends.h"

#include <poise/store.h>

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

/* Who stops at 16 MiB under way sends no more than a receiver puts up with that
 * lacks the first segment and hears of it late, however small segments are. */
static void test_small_segments(void **state)
{
    enum { MANY = 2 * LEN, UNDER_WAY = 16 << 20 };
    unsigned char *data = data_make(MANY, DATA_RANDOM, 9);
    struct end a = {0}, b = {0};
    uint64_t position;
    size_t sent = 0;

    (void)state;
    assert_non_null(data);
    make_store(&a, 0);
    make_store(&b, 0);
    /* So that it has a cache, and is offered fingerprints. */
    assert_int_equal(poise_dedup_store_add(b.store, "something", 9, &position),
                     0);
    connect_end(&a, poise_dedup_method_find("fixed"), 8);
    connect_end(&b, NULL, 0);
    run(&a, &b, NULL);
    while (sent < MANY && poise_dedup_peer_in_flight(a.peer) < UNDER_WAY) {
        assert_int_equal(
            poise_dedup_peer_send(a.peer, 1, data + sent, LEN / 16), 0);
        sent += LEN / 16;
        speak(&a, &b);
        assert_int_equal(hear(&b, NULL), 0);
    }
    assert_true(sent < MANY);
    assert_true(poise_dedup_peer_stats(a.peer).by_fingerprint > sent / 2);
    assert_int_equal(poise_dedup_peer_end(a.peer, 1), 0);
    assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
    run(&a, &b, NULL);
    assert_int_equal(b.received[1].len, sent);
    assert_memory_equal(b.received[1].data, data, sent);
    free(data);
    close_end(&a);
    close_end(&b);
}

/* What is known takes next to no bytes, which are not held back until they
 * are many: whoever waits for its arrival does not wait for ever. */
static void test_known_arrives(void **state)
{
    enum { MANY = 6 * LEN };
    unsigned char *data = data_make(MANY, DATA_RANDOM, 8);
    struct end a = {0}, b = {0};

    (void)state;
    assert_non_null(data);
    make_store(&a, 0);
    make_store(&b, 0);
    connect_end(&a, NULL, 0);
    connect_end(&b, NULL, 0);
    transfer(&a, &b, data, MANY, NULL);
    for (size_t at = 0; at < MANY; at += LEN / 4) {
        assert_int_equal(poise_dedup_peer_send(a.peer, 1, data + at, LEN / 4),
                         0);
        speak(&a, &b);
        assert_int_equal(hear(&b, NULL), 0);
        speak(&b, &a);
        assert_int_equal(hear(&a, NULL), 0);
        assert_true(poise_dedup_peer_in_flight(a.peer) < 2 * LEN);
    }
    free(data);
    close_end(&a);
    close_end(&b);
}

/* Everything there is, by every method, in portions of any size. */
static void test_all(void **state)
{
    struct poise_rng rng;

    (void)state;
    poise_rng_seed(&rng, 1);
    for (size_t m = 0; poise_dedup_methods()[m]; m++) {
        struct end a = {0}, b = {0};
        make_store(&a, 0);
        make_store(&b, 0);
        connect_end(&a, poise_dedup_methods()[m], 256);
        connect_end(&b, NULL, 0);
        for (int kind = 0; kind < DATA_KINDS; kind++) {
            if (!in_share(m + (size_t)kind)) {
                continue;
            }
            unsigned char *data =
                data_make(LEN / 4, (enum dedup_data)kind, m + 1);
            size_t len = LEN / 4;
            unsigned char *next = edit(data, &len, 9, 5);
            transfer(&a, &b, data, LEN / 4, &rng);
            transfer(&a, &b, next, len, &rng);
            free(data);
            free(next);
        }
        close_end(&a);
        close_end(&b);
    }
}

/* What each state of the two caches costs. */
static void test_costs(void **state)
{
    unsigned char *data = data_make(LEN, DATA_RANDOM, 2), *next;
    struct end a = {0}, b = {0};
    size_t len = LEN;
    uint64_t bytes;

    (void)state;
    next = edit(data, &len, 100, 3);
    make_store(&a, 0);
    make_store(&b, 0);
    connect_end(&a, NULL, 0);
    connect_end(&b, NULL, 0);
    /* Nothing is known: what Zstandard makes of it. */
    bytes = transfer(&a, &b, data, LEN, NULL);
    assert_in_range(bytes, LEN, LEN + LEN / 100);
    /* All of it is: runs. */
    bytes = transfer(&a, &b, data, LEN, NULL);
    assert_in_range(bytes, 50, 400);
    /* A hundred edits of ten new bytes each. */
    bytes = transfer(&a, &b, next, len, NULL);
    assert_in_range(bytes, 1000, 4000);
    assert_int_equal(poise_dedup_peer_stats(a.peer).repairs, 0);
    disconnect(&a);
    disconnect(&b);
    /* Known to both, in a new connection. */
    connect_end(&a, NULL, 0);
    connect_end(&b, NULL, 0);
    bytes = transfer(&a, &b, next, len, NULL);
    assert_in_range(bytes, 50, 2000);
    disconnect(&a);
    disconnect(&b);
    /* The sender lost its cache: two levels of fingerprints, 320 bytes a
     * segment. */
    poise_dedup_store_close(a.store);
    make_store(&a, 0);
    connect_end(&a, NULL, 0);
    connect_end(&b, NULL, 0);
    bytes = transfer(&a, &b, next, len, NULL);
    assert_in_range(bytes, LEN / 80, LEN / 40);
    disconnect(&a);
    disconnect(&b);
    /* The receiver lost its: the sender notices. */
    poise_dedup_store_close(b.store);
    make_store(&b, 0);
    connect_end(&a, NULL, 0);
    connect_end(&b, NULL, 0);
    bytes = transfer(&a, &b, next, len, NULL);
    assert_in_range(bytes, LEN, LEN + LEN / 100);
    disconnect(&a);
    disconnect(&b);
    /* The receiver has something else: beliefs fail. */
    poise_dedup_store_close(b.store);
    make_store(&b, 0);
    uint64_t at;
    assert_int_equal(poise_dedup_store_add(b.store, "else", 4, &at), 0);
    connect_end(&a, NULL, 0);
    connect_end(&b, NULL, 0);
    bytes = transfer(&a, &b, next, len, NULL);
    assert_in_range(bytes, LEN, LEN + LEN / 12);
    assert_true(poise_dedup_peer_stats(a.peer).requests > 0);
    close_end(&a);
    close_end(&b);
    free(data);
    free(next);
}

static char folders[2][TEMPORARY_BYTES];

static int remove_folder(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir) {
        closedir(dir);
    }
    return rmdir(path);
}

/* Both ends with a cache on disk that is larger than its memory. */
static void begin_small(struct end ends[2], uint32_t average)
{
    struct poise_dedup_store_options options = {.memory_bytes = 1 << 20};

    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            poise_dedup_store_open(folders[i], &options, &ends[i].store), 0);
        connect_end(&ends[i], NULL, average);
    }
}

/* Two versions, one behind the other, to a receiver that holds something else
 * or nothing: bytes sent, and what of the data went as it is. */
static uint64_t send_both(struct end *a, const unsigned char *const data[2],
                          const size_t lens[2], const void *else_held,
                          size_t else_len, uint64_t *as_data)
{
    struct end b = {0}, c = {0};
    uint64_t bytes = 0;

    make_store(&b, 0);
    if (else_len > 0) {
        make_store(&c, 0);
        connect_end(&c, NULL, 0);
        connect_end(&b, NULL, 0);
        transfer(&c, &b, else_held, else_len, NULL);
        close_end(&c);
        disconnect(&b);
    }
    connect_end(a, NULL, 0);
    connect_end(&b, NULL, 0);
    for (int i = 0; i < 2; i++) {
        bytes += transfer(a, &b, data[i], lens[i], NULL);
    }
    *as_data = poise_dedup_peer_stats(a->peer).by_data;
    assert_int_equal(poise_dedup_peer_stats(a->peer).repairs, 0);
    disconnect(a);
    close_end(&b);
    return bytes;
}

/* What an end has sent before costs it nothing with a new one: as if both knew
 * nothing, what this connection brought is referred to. */
static void test_new_host(void **state)
{
    /* Some of what the receiver holds comes again. */
    enum { HELD = LEN / 2, AGAIN = LEN / 8 };
    unsigned char *older = data_make(LEN, DATA_RANDOM, 41), *newer;
    unsigned char *held = data_make(HELD, DATA_RANDOM, 42);
    size_t lens[2] = {LEN, LEN};

    (void)state;
    assert_true(older && held);
    memcpy(older + LEN / 4, held + 1000, AGAIN);
    newer = edit(older, &lens[1], 40, 43);
    for (int holds = 0; holds < 2; holds++) {
        const unsigned char *const data[2] = {older, newer};
        struct end a = {0};
        uint64_t cold, warm, cold_data, warm_data;
        assert_non_null(mkdtemp(temporary_name(folders[0], "wire")));
        assert_int_equal(poise_dedup_store_open(folders[0], NULL, &a.store), 0);
        cold = send_both(&a, data, lens, held, holds ? HELD : 0, &cold_data);
        warm = send_both(&a, data, lens, held, holds ? HELD : 0, &warm_data);
        assert_in_range(cold, LEN / 8 * 7, LEN + LEN / 40);
        assert_true(cold_data <= LEN);
        assert_int_equal(warm_data, cold_data);
        assert_in_range(warm, 1, cold + 100);
        close_end(&a);
        assert_int_equal(remove_folder(folders[0]), 0);
    }
    free(older);
    free(newer);
    free(held);
}

/* The index has no room for all segments: both caches leave out the same ones,
 * and stay alike, so that what is known still goes by reference. */
static void test_small_memory(void **state)
{
    enum { MANY = 10 * LEN };
    unsigned char *data = data_make(MANY, DATA_RANDOM, 12), *next;
    struct end ends[2] = {0};
    size_t len = MANY;
    uint64_t bytes, containers;

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_non_null(mkdtemp(temporary_name(folders[i], "wire")));
    }
    next = edit(data, &len, 100, 3);
    begin_small(ends, 128);
    bytes = transfer(&ends[0], &ends[1], data, MANY, NULL);
    assert_in_range(bytes, MANY, MANY + MANY / 50);
    for (int i = 0; i < 2; i++) {
        assert_true(poise_dedup_store_info(ends[i].store).sampling > 0);
        close_end(&ends[i]);
    }
    for (int again = 0; again < 2; again++) {
        begin_small(ends, 128);
        /* What an end says of its cache are containers, not bytes: from how
         * many on a sender chooses whom it names depends on it. */
        containers = poise_dedup_store_info(ends[1].store).containers;
        assert_in_range(containers, 64, MANY / POISE_DEDUP_SEGMENT_MOST + 64);
        run(&ends[0], &ends[1], NULL);
        assert_int_equal(ends[0].peer->their_containers, containers);
        bytes = transfer(&ends[0], &ends[1], next, len, NULL);
        assert_in_range(bytes, 100, MANY / 100);
        close_end(&ends[0]);
        close_end(&ends[1]);
    }
    assert_int_equal(remove_folder(folders[0]), 0);
    assert_int_equal(remove_folder(folders[1]), 0);
    free(data);
    free(next);
}

/* Much that is new, and between it small things that were there before, most of
 * them long ago. */
static unsigned char *make_echoes(size_t len)
{
    enum { FRESH = 1500, ECHO = 400 };
    unsigned char *data = data_make(len, DATA_RANDOM, 31);
    struct poise_rng rng;

    assert_non_null(data);
    poise_rng_seed(&rng, 32);
    for (size_t at = LEN; at + ECHO <= len;) {
        size_t n = 50 + poise_rng_below(&rng, ECHO - 50);
        memcpy(data + at, data + poise_rng_below(&rng, at - n), n);
        at += n + poise_rng_below(&rng, FRESH);
    }
    return data;
}

/* What the index has left out is found as long as its container happens to be
 * in memory: other ones at both ends. Neither is it named then, nor do the
 * caches come apart over who added it again. */
static void test_small_echoes(void **state)
{
    enum { MANY = 5 * LEN };
    unsigned char *data = make_echoes(MANY), *next;
    struct end ends[2] = {0};
    size_t len = MANY;

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_non_null(mkdtemp(temporary_name(folders[i], "wire")));
    }
    next = edit(data, &len, 50, 33);
    for (int turn = 0; turn < 3; turn++) {
        struct poise_dedup_peer_stats stats;
        uint64_t bytes;
        begin_small(ends, 64);
        bytes = transfer(&ends[0], &ends[1], turn ? next : data,
                         turn ? len : MANY, NULL);
        stats = poise_dedup_peer_stats(ends[0].peer);
        assert_int_equal(stats.repairs, 0);
        assert_in_range(stats.requests, 0, turn ? 50 : 0);
        assert_in_range(bytes, 100, turn ? MANY / 25 : MANY);
        /* The sender's mark of whom it has sent to. */
        assert_int_equal(poise_dedup_store_info(ends[0].store).segments,
                         poise_dedup_store_info(ends[1].store).segments +
                             (turn ? 0 : 1));
        assert_true(poise_dedup_store_info(ends[0].store).sampling > 0);
        close_end(&ends[0]);
        close_end(&ends[1]);
    }
    assert_int_equal(remove_folder(folders[0]), 0);
    assert_int_equal(remove_folder(folders[1]), 0);
    free(data);
    free(next);
}

/* What does not shrink is not packed, what follows it is again; in a thread of
 * its own as without. */
static void test_incompressible(void **state)
{
    unsigned char *random = data_make(2 * LEN, DATA_RANDOM, 21);
    unsigned char *text = data_make(LEN, DATA_WORDS, 22);
    uint64_t sent[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct end ends[2] = {0};
        aside = i == 1;
        for (int j = 0; j < 2; j++) {
            make_store(&ends[j], 40);
            connect_end(&ends[j], NULL, 256);
        }
        sent[i] = transfer(&ends[0], &ends[1], random, 2 * LEN, NULL);
        assert_in_range(sent[i], 2 * LEN, 2 * LEN + 2 * LEN / 100);
        assert_true(ends[0].peer->blocks.pack.incompressible > 0);
        assert_int_equal(ends[0].peer->blocks.packer != NULL, aside);
        for (int j = 0; j < 2; j++) {
            poise_buf_free(&ends[j].received[1]);
            ends[j].ended[1] = 0;
        }
        assert_in_range(transfer(&ends[0], &ends[1], text, LEN, NULL), 1,
                        LEN * 3 / 4);
        assert_true(ends[0].peer->blocks.pack.incompressible == 0);
        close_end(&ends[0]);
        close_end(&ends[1]);
    }
    aside = false;
    assert_int_equal(sent[0], sent[1]);
    free(random);
    free(text);
}

/* Packed in a thread that there is no memory for, or that has none. */
static void test_packer_fails(void **state)
{
    enum { TRIES = 40 };
    unsigned char *data = data_make(LEN, DATA_RANDOM, 23);

    (void)state;
    aside = true;
    for (int k = 1; k <= TRIES; k++) {
        struct end ends[2] = {0};
        int code;
        for (int j = 0; j < 2; j++) {
            make_store(&ends[j], 40);
            connect_end(&ends[j], NULL, 4096);
        }
        run(&ends[0], &ends[1], NULL);
        poise_fault_arm(POISE_FAULT_ALLOC, (uint64_t)k, ENOMEM, false);
        code = poise_dedup_peer_send(ends[0].peer, 1, data, LEN);
        code = code < 0 ? code : poise_dedup_peer_flush(ends[0].peer);
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        assert_true(code == 0 || code == -ENOMEM);
        close_end(&ends[0]);
        close_end(&ends[1]);
    }
    aside = false;
    free(data);
}

/* Fingerprints so short that most are wrong. */
static void test_collisions(void **state)
{
    struct poise_rng rng;

    (void)state;
    poise_rng_seed(&rng, 3);
    for (int cold = 0; cold < 2; cold++) {
        unsigned char *data = data_make(LEN / 2, DATA_MIXED, 8), *next;
        struct end a = {0}, b = {0};
        size_t len = LEN / 2;
        next = edit(data, &len, 40, 3);
        make_store(&a, 8);
        make_store(&b, 8);
        connect_end(&a, NULL, 64);
        connect_end(&b, NULL, 64);
        transfer(&a, &b, data, LEN / 2, &rng);
        disconnect(&a);
        disconnect(&b);
        if (cold) {
            poise_dedup_store_close(a.store);
            make_store(&a, 8);
        }
        connect_end(&a, NULL, 64);
        connect_end(&b, NULL, 64);
        transfer(&a, &b, next, len, &rng);
        transfer(&a, &b, data, LEN / 2, &rng);
        assert_true(poise_dedup_peer_stats(a.peer).repairs > 0);
        close_end(&a);
        close_end(&b);
        free(data);
        free(next);
    }
}

/* Both ways at once, three streams, both caches filled by both. */
static void test_both_ways(void **state)
{
    enum { EACH = 200000 };
    struct end ends[2] = {0};
    struct poise_rng rng;

    (void)state;
    poise_rng_seed(&rng, 4);
    make_store(&ends[0], 0);
    make_store(&ends[1], 0);
    for (int round = 0; round < 4; round++) {
        unsigned char *data[2][STREAMS];
        size_t sent[2][STREAMS] = {0};
        connect_end(&ends[0], NULL, 128);
        connect_end(&ends[1], &dedup_lbfs, 256);
        run(&ends[0], &ends[1], NULL);
        for (int i = 0; i < 2 * STREAMS; i++) {
            data[i % 2][i / 2] =
                data_make(EACH, DATA_MIXED, (uint64_t)(i + round) / 2);
        }
        for (int left = 2 * STREAMS; left > 0;) {
            unsigned e = (unsigned)poise_rng_below(&rng, 2);
            unsigned s = (unsigned)poise_rng_below(&rng, STREAMS);
            size_t n = 1 + poise_rng_below(&rng, 20000);
            struct poise_dedup_peer *peer = ends[e].peer;
            n = n < EACH - sent[e][s] ? n : EACH - sent[e][s];
            assert_int_equal(
                poise_dedup_peer_send(peer, s, data[e][s] + sent[e][s], n), 0);
            sent[e][s] += n;
            if (n > 0 && sent[e][s] == EACH) {
                assert_int_equal(poise_dedup_peer_end(peer, s), 0);
                left--;
            }
            if (poise_rng_below(&rng, 3) == 0) {
                assert_int_equal(poise_dedup_peer_flush(peer), 0);
            }
            speak(&ends[e], &ends[1 - e]);
            assert_int_equal(hear(&ends[1 - e], &rng), 0);
        }
        assert_int_equal(poise_dedup_peer_flush(ends[0].peer), 0);
        assert_int_equal(poise_dedup_peer_flush(ends[1].peer), 0);
        run(&ends[0], &ends[1], &rng);
        for (int i = 0; i < 2 * STREAMS; i++) {
            struct end *to = &ends[1 - i % 2];
            assert_int_equal(to->ended[i / 2], 1);
            assert_int_equal(to->received[i / 2].len, EACH);
            assert_memory_equal(to->received[i / 2].data, data[i % 2][i / 2],
                                EACH);
            free(data[i % 2][i / 2]);
        }
        disconnect(&ends[0]);
        disconnect(&ends[1]);
    }
    poise_dedup_store_close(ends[0].store);
    poise_dedup_store_close(ends[1].store);
}

/* ---- placed pieces ------------------------------------------------------ */

enum { WIDTH = 640, HEIGHT = 400, TILE = 40 };

static int draw(uint32_t stream, const struct poise_dedup_piece *piece,
                void *arg)
{
    unsigned char *screen = arg;
    const struct poise_dedup_place *place = &piece->place;

    assert_int_equal(stream, 2);
    assert_true(place->x + place->width <= WIDTH);
    assert_true(place->y + place->height <= HEIGHT);
    assert_int_equal(piece->len, (size_t)place->width * place->height);
    for (uint32_t row = 0; row < place->height; row++) {
        memcpy(screen + (place->y + row) * WIDTH + place->x,
               piece->data + (size_t)row * place->width, place->width);
    }
    return 0;
}

/* A screen in tiles, in any order; the same again costs little. */
static void test_placed(void **state)
{
    static unsigned char there[WIDTH * HEIGHT]; /* kept off the stack */
    unsigned char *screen = data_make(WIDTH * HEIGHT, DATA_RANDOM, 6);
    struct end a = {0}, b = {0};
    struct poise_dedup_peer_options options = {.deliver = draw, .arg = there};
    uint64_t bytes = 0;
    struct poise_rng rng;

    (void)state;
    poise_rng_seed(&rng, 6);
    make_store(&a, 0);
    make_store(&b, 0);
    connect_end(&a, NULL, 0);
    options.store = b.store;
    assert_int_equal(poise_dedup_peer_create(&options, &b.peer), 0);
    run(&a, &b, NULL);
    for (int round = 0; round < 3; round++) {
        memset(there, 0, sizeof there);
        for (int y = 0; y < HEIGHT; y += TILE) {
            for (int x = WIDTH - TILE; x >= 0; x -= TILE) {
                unsigned char tile[TILE * TILE];
                struct poise_dedup_piece piece = {
                    .data = tile,
                    .len = sizeof tile,
                    .kind = (x / TILE) % 5 == 4 ? POISE_DEDUP_LITERAL
                                                : POISE_DEDUP_SEGMENT,
                    .place = {(uint64_t)x, (uint32_t)y, TILE, TILE}};
                for (int row = 0; row < TILE; row++) {
                    memcpy(tile + row * TILE, screen + (y + row) * WIDTH + x,
                           TILE);
                }
                assert_int_equal(poise_dedup_peer_send_piece(a.peer, 2, &piece),
                                 0);
            }
        }
        assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
        run(&a, &b, &rng);
        assert_memory_equal(there, screen, sizeof there);
        bytes = poise_dedup_peer_stats(a.peer).wire_out - bytes;
    }
    close_end(&a);
    close_end(&b);
    free(screen);
}

/* ---- deltas ------------------------------------------------------------- */

static void test_delta(void **state)
{
    struct poise_rng rng;

    (void)state;
    poise_rng_seed(&rng, 15);
    for (int round = 0; round < 400; round++) {
        size_t base_len = poise_rng_below(&rng, WIRE_BASE_MOST), len = base_len;
        if (!in_share((size_t)round)) {
            continue;
        }
        unsigned char *base = data_make(
            base_len, (enum dedup_data)(round % DATA_KINDS), (uint64_t)round);
        unsigned char *data = edit(base, &len, round % 30, (uint64_t)round);
        struct poise_buf packed = {0}, made = {0};
        assert_int_equal(wire_delta_make(base, base_len, data, len, &packed),
                         0);
        struct poise_reader reader = poise_reader_of(packed.data, packed.len);
        assert_int_equal(wire_delta_apply(base, base_len, &reader, len, &made),
                         0);
        assert_int_equal(made.len, len);
        assert_memory_equal(made.data, data, len);
        assert_int_equal(poise_reader_left(&reader), 0);
        /* In constant data there are more matches than are looked at. */
        if (base_len > 1000 && round % DATA_KINDS <= DATA_WORDS) {
            assert_true(packed.len < 60 * (size_t)(round % 30) + 20);
        }
        poise_buf_free(&packed);
        poise_buf_free(&made);
        free(base);
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delta),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_known_arrives),
        cmocka_unit_test(test_small_segments),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_new_host),
        cmocka_unit_test(test_small_memory),
        cmocka_unit_test(test_collisions),
        cmocka_unit_test(test_both_ways),
        cmocka_unit_test(test_placed),
        cmocka_unit_test(test_incompressible),
        cmocka_unit_test(test_packer_fails),
        cmocka_unit_test(test_small_echoes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
