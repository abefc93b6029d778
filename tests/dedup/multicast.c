/* Several receivers of one sender: each gets every byte, whatever its cache
 * holds and whatever becomes of the others. */
#include "data.h"
#include "dedup/protocol/internal.h"

#include <poise/store.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { MEMBERS = 4, LEN = 1 << 20 };

struct far {
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer; /* there */
    struct poise_dedup_peer *here; /* the member that it is connected to */
    struct poise_buf received;
    unsigned ended;
};

struct scene {
    struct poise_dedup_store *store;
    struct poise_dedup_peer *lead;
    struct far far[MEMBERS];
};

static int deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    struct far *far = arg;
    struct poise_dedup_joiner joiner = {far->received.len};

    assert_int_equal(stream, 1);
    return poise_dedup_join(&joiner, piece, &far->received);
}

static int ended(uint32_t stream, void *arg)
{
    struct far *far = arg;

    (void)stream;
    far->ended++;
    return 0;
}

static int nothing(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    (void)stream;
    (void)piece;
    (void)arg;
    return -EBADMSG;
}

static void make_stores(struct scene *scene, const uint32_t bits[MEMBERS])
{
    struct poise_dedup_store_options options = {.memory_bytes = 32 << 20};

    assert_int_equal(poise_dedup_store_open(NULL, &options, &scene->store), 0);
    for (int i = 0; i < MEMBERS; i++) {
        options.bits = bits ? bits[i] : 0;
        assert_int_equal(
            poise_dedup_store_open(NULL, &options, &scene->far[i].store), 0);
    }
}

static void connect_all(struct scene *scene)
{
    struct poise_dedup_peer_options options = {
        .store = scene->store, .deliver = nothing, .is_leader = true};

    assert_int_equal(poise_dedup_peer_create(&options, &scene->lead), 0);
    for (int i = 0; i < MEMBERS; i++) {
        struct far *far = &scene->far[i];
        struct poise_dedup_peer_options there = {.store = far->store,
                                                 .deliver = deliver,
                                                 .ended = ended,
                                                 .arg = far};
        options = (struct poise_dedup_peer_options){.store = scene->store,
                                                    .deliver = nothing,
                                                    .leader = scene->lead,
                                                    .level = 1};
        assert_int_equal(poise_dedup_peer_create(&options, &far->here), 0);
        assert_int_equal(poise_dedup_peer_create(&there, &far->peer), 0);
    }
}

static void leave(struct far *far)
{
    poise_dedup_peer_destroy(far->here);
    poise_dedup_peer_destroy(far->peer);
    far->here = far->peer = NULL;
    poise_buf_free(&far->received);
    far->ended = 0;
}

static void disconnect(struct scene *scene)
{
    for (int i = 0; i < MEMBERS; i++) {
        leave(&scene->far[i]);
    }
    poise_dedup_peer_destroy(scene->lead);
}

static void close_stores(struct scene *scene)
{
    poise_dedup_store_close(scene->store);
    for (int i = 0; i < MEMBERS; i++) {
        poise_dedup_store_close(scene->far[i].store);
    }
}

/* Bytes of one connection, in pieces of at most `most`: whether there were
 * any. */
static bool carry(struct poise_dedup_peer *from, struct poise_dedup_peer *to,
                  size_t most)
{
    const void *data;
    size_t len = poise_dedup_peer_output(from, &data);

    len = len < most ? len : most;
    if (len > 0) {
        assert_int_equal(poise_dedup_peer_feed(to, data, len), 0);
        poise_dedup_peer_took(from, len);
    }
    return len > 0;
}

/* Until nobody has anything to say; some are slower than others. */
static void run(struct scene *scene)
{
    bool more = true;

    while (more) {
        more = false;
        for (int i = 0; i < MEMBERS; i++) {
            struct far *far = &scene->far[i];
            if (far->peer) {
                size_t most = i % 2 ? SIZE_MAX : 3000;
                more |= carry(far->here, far->peer, most);
                more |= carry(far->peer, far->here, most);
            }
        }
    }
}

/* Send to all, whole, and see that it arrived. */
static void transfer(struct scene *scene, const unsigned char *data, size_t len)
{
    run(scene);
    for (size_t at = 0; at < len;) {
        size_t n = len - at < 100000 ? len - at : 100000;
        assert_int_equal(poise_dedup_peer_send(scene->lead, 1, data + at, n),
                         0);
        at += n;
        carry(scene->far[1].here, scene->far[1].peer, SIZE_MAX);
    }
    assert_int_equal(poise_dedup_peer_end(scene->lead, 1), 0);
    assert_int_equal(poise_dedup_peer_flush(scene->lead), 0);
    run(scene);
    assert_true(poise_dedup_peer_in_flight(scene->lead) == 0);
    for (int i = 0; i < MEMBERS; i++) {
        struct far *far = &scene->far[i];
        if (far->peer) {
            assert_int_equal(far->ended, 1);
            assert_int_equal(far->received.len, len);
            assert_memory_equal(far->received.data, data, len);
            assert_true(poise_dedup_peer_in_flight(far->here) == 0);
            poise_buf_reset(&far->received);
            far->ended = 0;
        }
    }
}

static void add_all(struct poise_dedup_store *store, const unsigned char *data,
                    size_t len)
{
    for (size_t at = 0; at + 256 <= len; at += 256) {
        uint64_t position;
        assert_int_equal(
            poise_dedup_store_add(store, data + at, 256, &position), 0);
    }
}

/* New data, known data, changed data; for caches of several widths. */
static void test_all_get_it(void **state)
{
    static const uint32_t bits[][MEMBERS] = {
        {40, 40, 40, 40}, {8, 16, 40, 64}, {8, 8, 9, 12}};

    (void)state;
    for (size_t b = 0; b < 3; b++) {
        struct scene scene = {0};
        make_stores(&scene, bits[b]);
        for (int kind = 0; kind < DATA_KINDS; kind++) {
            unsigned char *data =
                data_make(LEN, (enum dedup_data)kind, 1 + (uint64_t)kind);
            assert_non_null(data);
            for (int again = 0; again < 3; again++) {
                connect_all(&scene);
                assert_int_equal(poise_dedup_peer_send(scene.lead, 1, data, 1),
                                 -EAGAIN);
                transfer(&scene, data, LEN);
                disconnect(&scene);
                memmove(data + 1000, data + 1100, LEN / 2);
            }
            free(data);
        }
        close_stores(&scene);
    }
}

/* What is known costs each little; what is new is compressed once: the others'
 * bytes are those of the first. */
static void test_costs(void **state)
{
    struct scene scene = {0};
    unsigned char *data = data_make(LEN, DATA_WORDS, 9);
    uint64_t first[MEMBERS];

    (void)state;
    assert_non_null(data);
    make_stores(&scene, NULL);
    connect_all(&scene);
    transfer(&scene, data, LEN);
    for (int i = 0; i < MEMBERS; i++) {
        first[i] = poise_dedup_peer_stats(scene.far[i].here).wire_out;
        assert_true(first[i] < LEN / 2);
        assert_true(first[i] < first[0] + first[0] / 10);
    }
    disconnect(&scene);
    connect_all(&scene);
    transfer(&scene, data, LEN);
    for (int i = 0; i < MEMBERS; i++) {
        assert_true(poise_dedup_peer_stats(scene.far[i].here).wire_out <
                    first[i] / 20);
    }
    disconnect(&scene);
    close_stores(&scene);
    free(data);
}

/* One that lacks what the others have is supplied with it, and they are not;
 * one that has all in another order, too. */
static void test_lacks(void **state)
{
    struct scene scene = {0};
    unsigned char *data = data_make(LEN, DATA_RANDOM, 3);
    uint64_t out[MEMBERS];

    (void)state;
    assert_non_null(data);
    make_stores(&scene, NULL);
    connect_all(&scene);
    transfer(&scene, data, LEN);
    disconnect(&scene);
    /* It had something else instead. */
    assert_int_equal(poise_dedup_store_close(scene.far[2].store), 0);
    assert_int_equal(
        poise_dedup_store_open(NULL, &(struct poise_dedup_store_options){0},
                               &scene.far[2].store),
        0);
    add_all(scene.far[2].store, data + LEN / 2, LEN / 4);
    connect_all(&scene);
    transfer(&scene, data, LEN);
    for (int i = 0; i < MEMBERS; i++) {
        out[i] = poise_dedup_peer_stats(scene.far[i].here).wire_out;
    }
    assert_true(out[2] > LEN / 2);
    for (int i = 0; i < MEMBERS; i++) {
        assert_true(i == 2 || out[i] < LEN / 20);
    }
    disconnect(&scene);
    close_stores(&scene);
    free(data);
}

/* Whoever goes in the middle is no reason to wait. */
static void test_leaves(void **state)
{
    unsigned char *data = data_make(LEN, DATA_MIXED, 5);

    (void)state;
    assert_non_null(data);
    for (int when = 0; when < 4; when++) {
        struct scene scene = {0};
        make_stores(&scene, NULL);
        connect_all(&scene);
        run(&scene);
        if (when == 0) {
            leave(&scene.far[0]);
        }
        assert_int_equal(poise_dedup_peer_send(scene.lead, 1, data, LEN / 2),
                         0);
        if (when == 1) {
            leave(&scene.far[3]);
        }
        assert_int_equal(poise_dedup_peer_flush(scene.lead), 0);
        carry(scene.far[2].here, scene.far[2].peer, 20000);
        carry(scene.far[2].peer, scene.far[2].here, 20000);
        if (when >= 2) {
            leave(&scene.far[2]);
        }
        if (when == 3) {
            leave(&scene.far[0]);
        }
        assert_int_equal(
            poise_dedup_peer_send(scene.lead, 1, data + LEN / 2, LEN / 2), 0);
        assert_int_equal(poise_dedup_peer_end(scene.lead, 1), 0);
        assert_int_equal(poise_dedup_peer_flush(scene.lead), 0);
        run(&scene);
        assert_true(poise_dedup_peer_in_flight(scene.lead) == 0);
        for (int i = 0; i < MEMBERS; i++) {
            if (scene.far[i].peer) {
                assert_int_equal(scene.far[i].received.len, LEN);
                assert_memory_equal(scene.far[i].received.data, data, LEN);
            }
        }
        disconnect(&scene);
        close_stores(&scene);
    }
    free(data);
}

/* What a multicast may not be used for, and what nobody may send to one. */
static void test_wrong(void **state)
{
    static const unsigned char multicast[] = {WIRE_MULTICAST, 3, 0, 0, 9};
    static const unsigned char early[] = {WIRE_MULTICAST, 4, 2, 0, WIRE_RUN, 1};
    static const unsigned char prints[] = {WIRE_PRINTS, 200, 1, 1};
    static const unsigned char many[] = {WIRE_PRINTS, 255, 255, 255, 127};
    static const struct {
        const unsigned char *data;
        size_t len;
    } all[] = {{early, sizeof early},
               {multicast, sizeof multicast},
               {prints, sizeof prints},
               {many, sizeof many}};
    struct scene scene = {0};

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct poise_dedup_peer *here;
        const void *data;
        size_t len;
        int code = 0;
        make_stores(&scene, NULL);
        connect_all(&scene);
        run(&scene);
        here = scene.far[0].here;
        assert_int_equal(poise_dedup_peer_send(here, 1, "x", 1), -EINVAL);
        assert_int_equal(
            poise_buf_append(&here->blocks.raw, all[i].data, all[i].len), 0);
        assert_int_equal(wire_blocks_close(&here->blocks), 0);
        len = poise_dedup_peer_output(here, &data);
        for (int twice = 0; twice < 2 && code == 0; twice++) {
            code = poise_dedup_peer_feed(scene.far[0].peer, data, len);
        }
        assert_int_equal(code, -EBADMSG);
        disconnect(&scene);
        close_stores(&scene);
        scene = (struct scene){0};
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_get_it), cmocka_unit_test(test_costs),
        cmocka_unit_test(test_lacks),      cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
