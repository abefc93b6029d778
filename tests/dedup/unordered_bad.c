/* Updates where something is wrong: who uses them, the other end, what lies
 * between them, or memory. */
#include "unordered.h"

#include <poise/store.h>

/* ---- what is refused ---------------------------------------------------- */

/* Who was made before there were updates says and hears nothing of them. */
static void test_old_peer(void **state)
{
    static const uint64_t ids[] = {1, 2};
    unsigned char hello[22] = {20, 0, WIRE_HELLO, WIRE_VERSION};
    struct end a = {0}, b = {0};

    (void)state;
    make_store(&a, 0);
    make_store(&b, 0);
    connect_end(&a);
    connect_end(&b);
    assert_int_equal(poise_dedup_peer_allow_unordered(a.peer, 1), -EAGAIN);
    /* A hello with nothing behind it, in a block that is not packed; an empty
     * cache with fingerprints of 40 bits. */
    memcpy(hello + 4, poise_dedup_store_info(b.store).key.bytes,
           POISE_DEDUP_KEY_BYTES);
    hello[20] = 40;
    assert_int_equal(poise_dedup_peer_feed(a.peer, hello, sizeof hello), 0);
    assert_int_equal(poise_dedup_peer_allow_unordered(a.peer, 1), -EOPNOTSUPP);
    assert_int_equal(send_tiles(&a, &b, 1, ids, 2), 0);
    assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
    speak(&a, &b);
    assert_int_equal(hear(&b, NULL), 0);
    assert_int_equal(b.drawn, 2);
    assert_int_equal(b.guessed + b.proved, 0);
    close_end(&a);
    close_end(&b);
}

static void test_wrong_use(void **state)
{
    static unsigned char bytes[POISE_DEDUP_SEGMENT_MOST + 1];
    static struct poise_dedup_piece pieces[POISE_DEDUP_UPDATE_PIECES + 1];
    struct poise_dedup_update update = {.pieces = pieces, .count = 1};
    struct end a = {0}, b = {0};

    (void)state;
    make_store(&a, 0);
    make_store(&b, 0);
    connect_both(&a, &b);
    assert_int_equal(
        poise_dedup_peer_allow_unordered(a.peer, POISE_DEDUP_STREAMS), -EINVAL);
    for (size_t i = 0; i <= POISE_DEDUP_UPDATE_PIECES; i++) {
        pieces[i] = (struct poise_dedup_piece){
            .data = bytes, .len = 4, .place = {i, 0, 2, 2}};
    }
    assert_int_equal(poise_dedup_peer_update(a.peer, 1, &update, NULL), 1);
    update.element_bytes = 2;
    assert_int_equal(poise_dedup_peer_update(a.peer, 1, &update, NULL),
                     -EINVAL);
    update.element_bytes = 1;
    update.count = 0;
    assert_int_equal(poise_dedup_peer_update(a.peer, 1, &update, NULL),
                     -EINVAL);
    update.count = POISE_DEDUP_UPDATE_PIECES + 1;
    assert_int_equal(poise_dedup_peer_update(a.peer, 1, &update, NULL),
                     -EINVAL);
    update.count = 9; /* more than there may be together */
    for (size_t i = 0; i < 9; i++) {
        pieces[i].len = POISE_DEDUP_SEGMENT_MOST;
        pieces[i].place.width = POISE_DEDUP_SEGMENT_MOST;
        pieces[i].place.height = 1;
    }
    assert_int_equal(poise_dedup_peer_update(a.peer, 1, &update, NULL),
                     -EINVAL);
    /* Places whose area is small only if it is cut short. */
    pieces[0].len = 4;
    pieces[0].place.width = pieces[0].place.height = UINT32_MAX;
    update.count = 1;
    assert_int_equal(poise_dedup_peer_update(a.peer, 1, &update, NULL),
                     -EINVAL);
    /* What a segmenter holds back would be overtaken. */
    assert_int_equal(poise_dedup_peer_send(a.peer, 2, "x", 1), 0);
    pieces[0].place.width = pieces[0].place.height = 2;
    assert_int_equal(poise_dedup_peer_update(a.peer, 2, &update, NULL),
                     -EINVAL);
    close_end(&a);
    close_end(&b);
}

/* Messages that break a rule. */
static void test_nonsense(void **state)
{
    /* After STREAM 1, that is asked for: UPDATE, the next number, bytes of an
     * element, pieces, places. */
    static const struct {
        unsigned char bytes[40];
        size_t len;
    } messages[] = {
        {{WIRE_UNORDERED, 0x80, 32}, 3},         /* POISE_DEDUP_STREAMS */
        {{WIRE_UPDATE, 0, 1, 1, 0, 0, 4, 1}, 8}, /* of stream 0 */
        {{WIRE_STREAM, 1, WIRE_UPDATE, 0, 0, 1, 0, 0, 4, 1}, 10},
        {{WIRE_STREAM, 1, WIRE_UPDATE, 0, 1, 0}, 6},
        {{WIRE_STREAM, 1, WIRE_UPDATE, 0, 1, 1, 0, 0, 0, 1}, 10},
        {{WIRE_STREAM, 1, WIRE_UPDATE, 0, 1, 1, 0, 1, 4, 1}, 10}, /* y = -1 */
        {{WIRE_STREAM, 1, WIRE_UPDATE, 0, 1, 1, 0, 0, 0xff, 0xff, 4, 2}, 12},
        {{WIRE_STREAM, 1, WIRE_UPDATE, 0, 1, 0x81, 8, 0, 0, 4, 1}, 11},
        {{WIRE_STREAM, 1, WIRE_UPDATE, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
          0xff, 0xff, 1, 1, 1, 0, 0, 4, 1},
         19},
        {{WIRE_STREAM, 1, WIRE_UPDATE, 0, 1, 1, 0, 0, 4, 1, WIRE_END}, 11},
        {{WIRE_STREAM, 1, WIRE_UPDATE, 0, 1, 1, 0, 0, 4, 1, WIRE_DATA, 2, 2, 2,
          1, 2, 3, 4},
         18},
        {{WIRE_STREAM, 1,  WIRE_UPDATE, 0,  1,  1,  0,  0,  4, 1,  WIRE_GROUP,
          1,           2,  3,           4,  5,  6,  7,  8,  9, 10, 11,
          12,          13, 14,          15, 16, 17, 18, 19, 20},
         31},
        {{WIRE_STREAM, 1, WIRE_UPDATE,  0, 1, 2, 0, 0, 4,           1, 0, 0,
          4,           1, WIRE_LITERAL, 4, 1, 2, 3, 4, WIRE_STREAM, 2},
         22},
    };

    (void)state;
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        struct end a = {0}, b = {0};
        make_store(&a, 0);
        make_store(&b, 0);
        connect_both(&a, &b);
        poise_buf_append(&a.peer->blocks.raw, messages[i].bytes,
                         messages[i].len);
        assert_int_equal(wire_blocks_close(&a.peer->blocks), 0);
        speak(&a, &b);
        assert_int_equal(hear(&b, NULL), -EBADMSG);
        close_end(&a);
        close_end(&b);
    }
}

static void put_pieces(struct end *from, const unsigned char *bytes,
                       size_t count)
{
    struct poise_buf *raw = &from->peer->blocks.raw;

    poise_buf_varint(raw, count);
    for (size_t k = 0; k < count; k++) {
        poise_buf_varint(raw, 4);
    }
    poise_buf_append(raw, bytes, 4 * count);
}

static int seen(uint32_t stream, const struct poise_dedup_update *update,
                void *arg)
{
    struct end *end = arg;

    assert_int_equal(stream, 1);
    end->guessed += update->standing == POISE_DEDUP_GUESSED;
    if (update->standing == POISE_DEDUP_CORRECTED) {
        end->corrected++;
        assert_int_equal(update->count, 1);
        assert_int_equal(update->pieces[0].place.x, 6);
        assert_memory_equal(update->pieces[0].data, "efgh", 4);
    }
    return 0;
}

/* What was shown was wrong; all of it is supplied again, cut as it was or
 * otherwise: as many bytes, and the right hash. */
static void check_supplies(size_t first)
{
    static const unsigned char told[] = {1, 0, 1, 2, 0, 0, 4, 1, 4, 0, 4, 1};
    unsigned char hash[POISE_DEDUP_GROUP_BYTES];
    struct end a = {0}, b = {0};
    struct poise_buf *raw;

    make_store(&a, 0);
    make_store(&b, 0);
    connect_both(&a, &b);
    b.peer->options.update = seen;
    raw = &a.peer->blocks.raw;
    poise_buf_putc(raw, WIRE_STREAM);
    poise_buf_putc(raw, 1);
    poise_buf_putc(raw, WIRE_UPDATE);
    poise_buf_append(raw, told + 1, sizeof told - 1);
    poise_buf_putc(raw, WIRE_DATA);
    put_pieces(&a, (const void *)"abcd", 1);
    poise_buf_putc(raw, WIRE_DATA);
    put_pieces(&a, (const void *)"efgx", 1);
    assert_int_equal(poise_dedup_hasher_update(a.peer->hasher, told, 12), 0);
    assert_int_equal(poise_dedup_hasher_update(a.peer->hasher, "abcdefgh", 8),
                     0);
    assert_int_equal(poise_dedup_hasher_final(a.peer->hasher, hash), 0);
    poise_buf_putc(raw, WIRE_GROUP);
    poise_buf_append(raw, hash, sizeof hash);
    assert_int_equal(wire_blocks_close(&a.peer->blocks), 0);
    speak(&a, &b);
    assert_int_equal(hear(&b, NULL), 0);
    assert_int_equal(b.guessed, 1);
    for (size_t i = 0; i < 2; i++) {
        poise_buf_putc(raw, WIRE_SUPPLY);
        poise_buf_putc(raw, 0);
        poise_buf_putc(raw, (char)i);
        put_pieces(&a, (const unsigned char *)"abcdefgh" + 4 * first * i,
                   i ? 2 - first : first);
    }
    assert_int_equal(wire_blocks_close(&a.peer->blocks), 0);
    speak(&a, &b);
    assert_int_equal(hear(&b, NULL), first == 1 ? 0 : -EBADMSG);
    assert_int_equal(b.corrected, first == 1);
    close_end(&a);
    close_end(&b);
}

static void test_supplies(void **state)
{
    (void)state;
    check_supplies(0);
    check_supplies(1);
    check_supplies(2);
}

/* A reference behind something that is missing leads to what is not as long as
 * it should be, now: no guess. */
static void test_misfit(void **state)
{
    unsigned char message[] = {WIRE_STREAM, 1, WIRE_UPDATE, 0, 1, 2, 0,
                               0,           4, 1,           4, 0, 4, 1};
    static const uint64_t unknown[] = {500};
    struct end a = {0}, b = {0};
    struct poise_buf *raw;
    uint64_t at;

    (void)state;
    for (unsigned char second = 3; second < 6; second++) {
        make_store(&a, 0);
        make_store(&b, 0);
        poise_dedup_store_add(b.store, "abcd", 4, &at);
        poise_dedup_store_add(b.store, "efghi", second, &at);
        connect_both(&a, &b);
        assert_int_equal(send_tiles(&a, &b, 2, unknown, 1), 1);
        assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
        b.peer->options.update = seen;
        raw = &a.peer->blocks.raw;
        poise_buf_append(raw, message, sizeof message);
        poise_buf_putc(raw, WIRE_RUN);
        wire_put_print(raw, poise_dedup_store_fingerprint(b.store, "abcd", 4),
                       poise_dedup_store_info(b.store).bits);
        poise_buf_putc(raw, 2);
        poise_buf_putc(raw, WIRE_GROUP);
        for (int i = 0; i < POISE_DEDUP_GROUP_BYTES; i++) {
            poise_buf_putc(raw, 0);
        }
        assert_int_equal(wire_blocks_close(&a.peer->blocks), 0);
        speak(&a, &b);
        assert_int_equal(hear(&b, NULL), 0);
        assert_int_equal(b.guessed, second == 4);
        close_end(&a);
        close_end(&b);
    }
}

/* What a delivered group brings makes up for a guess that failed, although
 * others still wait before. */
static void test_guess_again(void **state)
{
    static const unsigned char told[] = {1, 0, 1, 1, 0, 0, 4, 1};
    unsigned char hash[POISE_DEDUP_GROUP_BYTES];
    struct end a = {0}, b = {0};
    struct poise_buf *raw;
    uint64_t print, at;

    (void)state;
    make_store(&a, 0);
    make_store(&b, 0);
    connect_both(&a, &b);
    b.peer->options.update = seen;
    raw = &a.peer->blocks.raw;
    print = poise_dedup_store_fingerprint(b.store, "abcd", 4);
    poise_dedup_hasher_update(a.peer->hasher, "abcd", 4);
    assert_int_equal(poise_dedup_hasher_final(a.peer->hasher, hash), 0);
    for (uint64_t i = 0; i < 3; i++) {
        if (i == 2) {
            poise_buf_append(raw, (unsigned char[]){WIRE_STREAM, 1}, 2);
            poise_buf_putc(raw, WIRE_UPDATE);
            poise_buf_append(raw, told + 1, sizeof told - 1);
        }
        poise_buf_putc(raw, i == 2 ? WIRE_RUN : WIRE_FINGERPRINTS);
        if (i < 2) {
            poise_buf_putc(raw, 1);
        }
        wire_put_print(raw, print + i % 2,
                       poise_dedup_store_info(b.store).bits);
        if (i == 2) {
            poise_buf_putc(raw, 1);
        }
        poise_buf_putc(raw, WIRE_GROUP);
        poise_buf_append(raw, hash, sizeof hash);
    }
    assert_int_equal(wire_blocks_close(&a.peer->blocks), 0);
    speak(&a, &b);
    assert_int_equal(hear(&b, NULL), 0);
    assert_int_equal(b.guessed, 0);
    poise_buf_append(raw, (unsigned char[]){WIRE_SUPPLY, 0, 0}, 3);
    put_pieces(&a, (const void *)"abcd", 1);
    assert_int_equal(wire_blocks_close(&a.peer->blocks), 0);
    speak(&a, &b);
    assert_int_equal(hear(&b, NULL), 0);
    assert_int_equal(poise_dedup_store_find(b.store, print, &at), 1);
    assert_int_equal(b.guessed, 1);
    assert_int_equal(poise_dedup_peer_final(b.peer, 1), 0);
    close_end(&a);
    close_end(&b);
}

/* ---- bounds ------------------------------------------------------------- */

enum { BIG = POISE_DEDUP_UPDATE_BYTES / POISE_DEDUP_SEGMENT_MOST, BIGS = 40 };

static int count_big(uint32_t stream, const struct poise_dedup_update *update,
                     void *arg)
{
    struct end *end = arg;

    (void)stream;
    if (update->count == BIG) {
        end->guessed += update->standing == POISE_DEDUP_GUESSED;
        end->proved += update->standing == POISE_DEDUP_PROVED;
    }
    assert_true(update->standing != POISE_DEDUP_CORRECTED);
    return 0;
}

/* Few bytes that name very much, behind something that is missing. */
static void test_bounded(void **state)
{
    unsigned char *data = data_make(POISE_DEDUP_UPDATE_BYTES, DATA_RANDOM, 50);
    struct poise_dedup_piece pieces[BIG] = {0};
    struct poise_dedup_update update = {.pieces = pieces, .count = BIG};
    static const uint64_t unknown[] = {500};
    struct end a = {0}, b = {0};

    (void)state;
    make_store(&a, 0);
    make_store(&b, 0);
    for (size_t i = 0; i < BIG; i++) {
        uint64_t at;
        pieces[i].data = data + i * POISE_DEDUP_SEGMENT_MOST;
        pieces[i].len = POISE_DEDUP_SEGMENT_MOST;
        pieces[i].place = (struct poise_dedup_place){0, (uint32_t)i, 256, 256};
        poise_dedup_store_add(a.store, pieces[i].data, pieces[i].len, &at);
        poise_dedup_store_add(b.store, pieces[i].data, pieces[i].len, &at);
    }
    connect_both(&a, &b);
    b.peer->options.update = count_big;
    assert_int_equal(send_tiles(&a, &b, 1, unknown, 1), 1);
    for (int i = 0; i < BIGS; i++) {
        assert_int_equal(poise_dedup_peer_update(a.peer, 1, &update, NULL), 1);
    }
    assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
    speak(&a, &b);
    assert_int_equal(hear(&b, NULL), 0);
    assert_true(b.guessed > 0 && b.guessed < BIGS);
    assert_true(b.peer->receiver.guessed <= WIRE_GUESS_MOST + WIRE_GROUP_MOST);
    run(&a, &b, NULL);
    assert_int_equal(b.guessed + b.proved, BIGS);
    assert_int_equal(b.peer->receiver.guessed, 0);
    close_end(&a);
    close_end(&b);
    free(data);
}

/* What was shown leaves the cache before it is proved: then it is asked for,
 * and nothing was wrong. */
static void test_evicted(void **state)
{
    static const uint64_t unknown[] = {500}, known[] = {1, 2, 3};
    struct poise_dedup_store_options options = {.memory_bytes = 1 << 20,
                                                .container_bytes = 1 << 16};
    struct end a = {0}, b = {0};
    uint64_t first, at;

    (void)state;
    make_store(&a, 0);
    assert_int_equal(poise_dedup_store_open(NULL, &options, &b.store), 0);
    know_tiles(&a, 1, 5);
    know_tiles(&b, 1, 5);
    make_known(&b, &a);
    connect_both(&a, &b);
    assert_int_equal(send_tiles(&a, &b, 1, unknown, 1), 1);
    assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
    assert_int_equal(send_tiles(&a, &b, 1, known, 3), 1);
    assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
    speak(&a, &b);
    assert_int_equal(hear(&b, NULL), 0);
    assert_true(b.records[1][1].is_there && b.peer->receiver.guessed > 0);
    first = poise_dedup_store_fingerprint(b.store, b.records[1][1].sent, 256);
    assert_int_equal(poise_dedup_store_find(b.store, first, &at), 1);
    for (uint64_t i = 0; i < 100; i++) {
        unsigned char *data = data_make(30000, DATA_RANDOM, 60 + i);
        poise_dedup_store_add(b.store, data, 30000, &at);
        free(data);
    }
    assert_int_equal(poise_dedup_store_find(b.store, first, &at), 0);
    run(&a, &b, NULL);
    check_all(&b);
    assert_int_equal(b.wrong, 0);
    assert_true(poise_dedup_peer_stats(a.peer).requests >= 2);
    assert_int_equal(poise_dedup_peer_final(b.peer, 1), 2);
    close_end(&a);
    close_end(&b);
}

/* ---- what goes wrong ---------------------------------------------------- */

/* Up to 40 updates, many of whose guesses are wrong. */
static void send_many(struct end *a, struct end *b)
{
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t ids[MOST];
        for (size_t k = 0; k < MOST; k++) {
            ids[k] = (i % 2 ? 10000 : 30000) + 10 * i + k;
        }
        assert_int_equal(send_tiles(a, b, 1, ids, MOST), 1);
        if (i % 3 == 0) {
            assert_int_equal(poise_dedup_peer_flush(a->peer), 0);
        }
    }
    assert_int_equal(poise_dedup_peer_flush(a->peer), 0);
}

/* Final is what was sent, whatever happened to the connection. */
static void check_final(const struct end *end)
{
    uint64_t final = poise_dedup_peer_final(end->peer, 1);

    assert_true(final <= end->sent[1]);
    for (uint64_t i = 0; i < final; i++) {
        const struct record *record = &end->records[1][i];
        assert_true(record->is_there);
        assert_memory_equal(record->received, record->sent, record->len);
    }
}

/* Cut anywhere. */
static void test_cut(void **state)
{
    struct end a = {0}, b = {0};
    struct poise_rng rng;
    unsigned early = 0;

    (void)state;
    poise_rng_seed(&rng, 40);
    make_store(&b, 8);
    know_tiles(&b, 10000, 400);
    for (int round = 0; round < 10; round++) {
        size_t stop;
        make_store(&a, 40);
        connect_both(&a, &b);
        stop = b.arrived + poise_rng_below(&rng, 100000);
        send_many(&a, &b);
        while (b.arrived < stop) {
            speak(&a, &b);
            speak(&b, &a);
            if (b.arrived == b.coming.len && a.arrived == a.coming.len) {
                break;
            }
            assert_int_equal(hear(&b, &rng), 0);
            assert_int_equal(hear(&a, &rng), 0);
        }
        check_final(&b);
        early += poise_dedup_peer_final(b.peer, 1) < 40;
        disconnect(&b);
        close_end(&a);
    }
    assert_true(early > 0);
    assert_int_equal(poise_dedup_store_close(b.store), 0);
}

static int take_any(uint32_t stream, const struct poise_dedup_update *update,
                    void *arg)
{
    struct end *end = arg;

    /* A guess may lie anywhere, but is as long as its place says. */
    for (size_t i = 0; i < update->count; i++) {
        const struct poise_dedup_piece *piece = &update->pieces[i];
        assert_int_equal(piece->len, (uint64_t)piece->place.width *
                                         piece->place.height *
                                         update->element_bytes);
    }
    if (update->standing == POISE_DEDUP_PROVED) {
        return take(stream, update, arg);
    }
    end->guessed++;
    return 0;
}

/* One bit of what arrives is another one: what is final is right, if
 * anything is. */
static void test_altered(void **state)
{
    enum { ROUNDS = 30 };
    static const uint64_t ids[] = {10, 20, 30};
    struct end a = {0}, b = {0};
    struct poise_rng rng;
    unsigned stopped = 0;

    (void)state;
    poise_rng_seed(&rng, 41);
    make_store(&a, 0);
    know_tiles(&a, 10, 1);
    for (int round = 0; round < ROUNDS; round++) {
        size_t from;
        int code = 0;
        make_store(&b, 0);
        know_tiles(&b, 10, 1);
        connect_both(&a, &b);
        b.peer->options.update = take_any;
        from = b.coming.len;
        for (int i = 0; i < 4; i++) {
            assert_int_equal(send_tiles(&a, &b, 1, ids, 3), 1);
        }
        assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
        speak(&a, &b);
        from += poise_rng_below(&rng, b.coming.len - from);
        b.coming.data[from] ^= (char)(1 << poise_rng_below(&rng, 8));
        while (code == 0 && b.arrived < b.coming.len) {
            code = hear(&b, &rng);
        }
        assert_true(code == 0 || code == -EBADMSG);
        /* One group: all of it, or nothing. */
        stopped += poise_dedup_peer_final(b.peer, 1) == 0;
        disconnect(&a);
        close_end(&b);
    }
    assert_true(stopped > ROUNDS * 3 / 4);
    close_end(&a);
}

/* Any piece of memory that is missing: an error, and no more. */
static void test_no_memory(void **state)
{
    bool struck = true;

    (void)state;
    for (uint64_t k = 1; struck; k += 1 + k / 2) {
        struct end a = {0}, b = {0};
        struct poise_dedup_piece pieces[3];
        struct poise_dedup_update update = {.pieces = pieces, .count = 3};
        static unsigned char bytes[3][400];
        int code = 0;
        make_store(&a, 0);
        make_store(&b, 8);
        know_tiles(&b, 10000, 40);
        connect_both(&a, &b);
        b.peer->options.update = take_any;
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        for (int i = 0; i < 12 && code >= 0; i++) {
            for (int n = 0; n < 3; n++) {
                memset(bytes[n], i / 2 + 3 * n, sizeof bytes[n]);
                pieces[n] = (struct poise_dedup_piece){
                    .data = bytes[n],
                    .len = sizeof bytes[n],
                    .place = {(uint64_t)n, 0, 20, 20}};
            }
            code = poise_dedup_peer_update(a.peer, 1, &update, NULL);
            if (code >= 0 && i % 2) {
                code = poise_dedup_peer_flush(a.peer);
            }
        }
        for (int i = 0; i < 60 && code >= 0; i++) {
            const void *data;
            struct end *from = i % 2 ? &b : &a, *to = i % 2 ? &a : &b;
            size_t len = poise_dedup_peer_output(from->peer, &data);
            code = poise_dedup_peer_feed(to->peer, data, len);
            poise_dedup_peer_took(from->peer, len);
        }
        struck = poise_fault_calls(POISE_FAULT_ALLOC) >= k;
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        assert_true(code == -ENOMEM ||
                    (code == 0 && poise_dedup_peer_final(b.peer, 1) == 12));
        close_end(&a);
        close_end(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_old_peer),  cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_nonsense),  cmocka_unit_test(test_supplies),
        cmocka_unit_test(test_misfit),    cmocka_unit_test(test_guess_again),
        cmocka_unit_test(test_bounded),   cmocka_unit_test(test_evicted),
        cmocka_unit_test(test_cut),       cmocka_unit_test(test_altered),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
