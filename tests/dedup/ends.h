/*
 * Two ends of a connection in one process, and the bytes that are on their way
 * between them; for tests of the wire.
 */
#ifndef POISE_TESTS_DEDUP_ENDS_H
#define POISE_TESTS_DEDUP_ENDS_H

#include "data.h"
#include "dedup/protocol/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { STREAMS = 3, LEN = 1 << 20 };

static bool aside; /* global: whether ends of this test pack in a thread */

/* One end, what it was given, and bytes on their way to it. */
struct end {
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer;
    struct poise_buf received[STREAMS];
    unsigned ended[STREAMS];
    struct poise_buf coming;
    size_t arrived; /* of what is coming */
};

static inline int deliver(uint32_t stream,
                          const struct poise_dedup_piece *piece, void *arg)
{
    struct end *end = arg;
    struct poise_dedup_joiner joiner = {end->received[stream].len};

    assert_true(stream < STREAMS);
    return poise_dedup_join(&joiner, piece, &end->received[stream]);
}

static inline int ended(uint32_t stream, void *arg)
{
    struct end *end = arg;

    end->ended[stream]++;
    return 0;
}

static inline void connect_end(struct end *end,
                               const struct poise_dedup_method *method,
                               uint32_t average)
{
    struct poise_dedup_peer_options options = {.store = end->store,
                                               .method = method,
                                               .cut = {.average = average},
                                               .packs_in_thread = aside,
                                               .deliver = deliver,
                                               .ended = ended,
                                               .arg = end};

    assert_int_equal(poise_dedup_peer_create(&options, &end->peer), 0);
}

static inline void disconnect(struct end *end)
{
    poise_dedup_peer_destroy(end->peer);
    end->peer = NULL;
    for (int i = 0; i < STREAMS; i++) {
        poise_buf_free(&end->received[i]);
        end->ended[i] = 0;
    }
    poise_buf_free(&end->coming);
    end->arrived = 0;
}

static inline void make_store(struct end *end, uint32_t bits)
{
    struct poise_dedup_store_options options = {.bits = bits};

    assert_int_equal(poise_dedup_store_open(NULL, &options, &end->store), 0);
}

/* Put on its way what an end has to say. */
static inline void speak(struct end *from, struct end *to)
{
    const void *data;
    size_t len;

    assert_int_equal(poise_dedup_peer_wait(from->peer), 0);
    len = poise_dedup_peer_output(from->peer, &data);
    assert_int_equal(poise_buf_append(&to->coming, data, len), 0);
    poise_dedup_peer_took(from->peer, len);
}

/* Let some of it arrive. */
static inline int hear(struct end *to, struct poise_rng *rng)
{
    size_t len = to->coming.len - to->arrived;
    int code;

    if (rng && len > 0) {
        len = 1 + poise_rng_below(rng, len < 5000 ? len : 5000);
    }
    code = poise_dedup_peer_feed(to->peer, to->coming.data + to->arrived, len);
    to->arrived += len;
    return code;
}

/* Until nobody has anything to say. */
static inline void run(struct end *a, struct end *b, struct poise_rng *rng)
{
    do {
        speak(a, b);
        speak(b, a);
        assert_int_equal(hear(b, rng), 0);
        assert_int_equal(hear(a, rng), 0);
        speak(a, b);
        speak(b, a);
    } while (a->arrived < a->coming.len || b->arrived < b->coming.len);
    assert_true(poise_dedup_peer_in_flight(a->peer) == 0);
    assert_true(poise_dedup_peer_in_flight(b->peer) == 0);
}

/* Send on stream 1, whole; how many bytes that took, both ways. */
static inline uint64_t transfer(struct end *a, struct end *b, const void *data,
                                size_t len, struct poise_rng *rng)
{
    uint64_t before = poise_dedup_peer_stats(a->peer).wire_out +
                      poise_dedup_peer_stats(b->peer).wire_out;
    const unsigned char *from = data;

    run(a, b, NULL);
    for (size_t at = 0; at < len;) {
        size_t n = len - at < 100000 ? len - at : 100000;
        assert_int_equal(poise_dedup_peer_send(a->peer, 1, from + at, n), 0);
        at += n;
        speak(a, b);
        assert_int_equal(hear(b, rng), 0);
        speak(b, a);
        assert_int_equal(hear(a, rng), 0);
    }
    assert_int_equal(poise_dedup_peer_end(a->peer, 1), 0);
    assert_int_equal(poise_dedup_peer_flush(a->peer), 0);
    run(a, b, rng);
    assert_int_equal(b->ended[1], 1);
    assert_int_equal(b->received[1].len, len);
    assert_memory_equal(b->received[1].data, data, len);
    b->ended[1] = 0;
    poise_buf_reset(&b->received[1]);
    return poise_dedup_peer_stats(a->peer).wire_out +
           poise_dedup_peer_stats(b->peer).wire_out - before;
}

/* A copy with some edits: bytes changed, inserted, removed. */
static inline unsigned char *edit(const unsigned char *data, size_t *len,
                                  unsigned edits, uint64_t seed)
{
    unsigned char *copy = malloc(*len + 100 * (size_t)edits + 1);
    size_t to = 0, from = 0, each = *len / (edits + 1);
    struct poise_rng rng;

    assert_non_null(copy);
    poise_rng_seed(&rng, seed);
    for (unsigned i = 0; i < edits; i++) {
        size_t n = each / 2 + poise_rng_below(&rng, each / 2);
        n = n < *len - from ? n : *len - from;
        memcpy(copy + to, data + from, n);
        to += n;
        from += n;
        size_t fresh = poise_rng_below(&rng, 20);
        for (size_t k = 0; k < fresh; k++) {
            copy[to++] = (unsigned char)(poise_rng_next(&rng) >> 33);
        }
        size_t gone = poise_rng_below(&rng, 20);
        from += gone < *len - from ? gone : *len - from;
    }
    memcpy(copy + to, data + from, *len - from);
    *len = to + *len - from;
    return copy;
}

static inline void close_end(struct end *end)
{
    disconnect(end);
    assert_int_equal(poise_dedup_store_close(end->store), 0);
}

#endif
