/* Two ends that send each other updates, and what is checked of each. */
#ifndef DEDUP_UNORDERED_H
#define DEDUP_UNORDERED_H

#include "data.h"
#include "dedup/protocol/internal.h"

#include <poise/store.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum {
    STREAMS = 4,
    PLAIN = 0, /* the one without updates */
    PIXEL = 4,
    SIDE = 8,
    MOST = 12, /* tiles in an update */
    UPDATES = 600,
    UPDATE_BYTES = MOST * PIXEL * SIDE * SIDE,
};

/* An update as it was sent, and as it is at the other end. */
struct record {
    unsigned char sent[UPDATE_BYTES], received[UPDATE_BYTES];
    struct poise_dedup_place places[MOST];
    size_t lens[MOST], count, len;
    bool is_unordered, is_there, is_wrong, is_final;
};
/* One end, what comes to it, and bytes on their way there. */
struct end {
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer;
    struct poise_buf coming;
    size_t arrived;
    struct record *records[STREAMS]; /* to come to this end */
    uint64_t sent[STREAMS];          /* of them */
    uint64_t highest[STREAMS];       /* that came, and one more */
    uint64_t final[STREAMS];         /* that was corrected, and one more */
    unsigned guessed, proved, corrected, wrong, late, ended;
    struct poise_buf plain, plain_sent;
    size_t drawn;      /* pieces by deliver on streams of updates */
    uint64_t drawn_at; /* where the last of them lies */
};

static inline int deliver(uint32_t stream,
                          const struct poise_dedup_piece *piece, void *arg)
{
    struct end *end = arg;
    struct poise_dedup_joiner joiner = {end->plain.len};

    if (stream != PLAIN) {
        end->drawn++;
        end->drawn_at = piece->place.x;
        return 0;
    }
    return poise_dedup_join(&joiner, piece, &end->plain);
}

static inline int ended(uint32_t stream, void *arg)
{
    struct end *end = arg;

    end->ended++;
    /* Whatever was sent before is final. */
    assert_int_equal(poise_dedup_peer_final(end->peer, stream),
                     end->sent[stream]);
    return 0;
}

static inline bool is_same_place(const struct poise_dedup_place *a,
                                 const struct poise_dedup_place *b)
{
    return a->x == b->x && a->y == b->y && a->width == b->width &&
           a->height == b->height;
}

/* All of an update, once. */
static inline void take_first(struct end *end, struct record *record,
                              const struct poise_dedup_update *update)
{
    size_t at = 0;

    assert_false(record->is_there);
    assert_int_equal(update->count, record->count);
    for (size_t i = 0; i < update->count; i++) {
        const struct poise_dedup_piece *piece = &update->pieces[i];
        assert_true(is_same_place(&piece->place, &record->places[i]));
        assert_int_equal(piece->len, record->lens[i]);
        memcpy(record->received + at, piece->data, piece->len);
        at += piece->len;
    }
    record->is_there = true;
    record->is_final = update->standing == POISE_DEDUP_PROVED;
    record->is_wrong = memcmp(record->received, record->sent, record->len) != 0;
    assert_false(record->is_wrong && record->is_final);
    end->wrong += record->is_wrong;
}

/* Those pieces that were wrong, and no others. */
static inline void take_correction(struct record *record,
                                   const struct poise_dedup_update *update)
{
    size_t at = 0, k = 0;

    assert_true(record->is_wrong && !record->is_final);
    for (size_t i = 0; i < record->count; i++) {
        const struct poise_dedup_piece *piece = &update->pieces[k];
        if (k < update->count &&
            is_same_place(&piece->place, &record->places[i])) {
            assert_int_equal(piece->len, record->lens[i]);
            assert_memory_not_equal(record->received + at, piece->data,
                                    piece->len);
            memcpy(record->received + at, piece->data, piece->len);
            k++;
        }
        at += record->lens[i];
    }
    assert_int_equal(k, update->count);
    assert_memory_equal(record->received, record->sent, record->len);
    record->is_wrong = false;
    record->is_final = true;
}

static inline int take(uint32_t stream, const struct poise_dedup_update *update,
                       void *arg)
{
    struct end *end = arg;
    struct record *record = &end->records[stream][update->sequence];

    assert_true(stream < STREAMS && update->sequence < end->sent[stream]);
    assert_int_equal(update->element_bytes, PIXEL);
    assert_true(record->is_unordered);
    if (update->standing == POISE_DEDUP_CORRECTED) {
        assert_true(update->sequence >= end->final[stream]);
        end->final[stream] = update->sequence + 1;
        end->corrected++;
        take_correction(record, update);
        return 0;
    }
    end->guessed += update->standing == POISE_DEDUP_GUESSED;
    end->proved += update->standing == POISE_DEDUP_PROVED;
    end->late += update->sequence < end->highest[stream];
    if (update->sequence >= end->highest[stream]) {
        end->highest[stream] = update->sequence + 1;
    }
    take_first(end, record, update);
    return 0;
}

static inline void make_store(struct end *end, uint32_t bits)
{
    struct poise_dedup_store_options options = {.bits = bits};

    assert_int_equal(poise_dedup_store_open(NULL, &options, &end->store), 0);
}

static inline void connect_end(struct end *end)
{
    struct poise_dedup_peer_options options = {.store = end->store,
                                               .cut = {.average = 64},
                                               .deliver = deliver,
                                               .update = take,
                                               .ended = ended,
                                               .arg = end};

    assert_int_equal(poise_dedup_peer_create(&options, &end->peer), 0);
}

static inline void disconnect(struct end *end)
{
    struct poise_dedup_store *store = end->store;

    poise_dedup_peer_destroy(end->peer);
    for (int i = 0; i < STREAMS; i++) {
        free(end->records[i]);
    }
    poise_buf_free(&end->coming);
    poise_buf_free(&end->plain);
    poise_buf_free(&end->plain_sent);
    *end = (struct end){.store = store};
}

static inline void close_end(struct end *end)
{
    disconnect(end);
    assert_int_equal(poise_dedup_store_close(end->store), 0);
}

static inline void speak(struct end *from, struct end *to)
{
    const void *data;
    size_t len = poise_dedup_peer_output(from->peer, &data);

    assert_int_equal(poise_buf_append(&to->coming, data, len), 0);
    poise_dedup_peer_took(from->peer, len);
}

static inline int hear(struct end *to, struct poise_rng *rng)
{
    size_t len = to->coming.len - to->arrived;
    int err;

    if (rng && len > 0) {
        len = 1 + poise_rng_below(rng, len < 3000 ? len : 3000);
    }
    err = poise_dedup_peer_feed(to->peer, to->coming.data + to->arrived, len);
    to->arrived += len;
    return err;
}

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
}

static inline void allow_unordered(struct end *end, struct end *other,
                                   uint32_t stream)
{
    run(end, other, NULL);
    assert_int_equal(poise_dedup_peer_allow_unordered(end->peer, stream), 0);
    run(end, other, NULL);
}

/* Two ends, and updates from `a` to `b` on all streams but the first. */
static inline void connect_both(struct end *a, struct end *b)
{
    connect_end(a);
    connect_end(b);
    for (uint32_t i = 1; i < STREAMS; i++) {
        allow_unordered(b, a, i);
    }
}

/* Tile number `id`; the same everywhere. */
static inline void draw_tile(unsigned char *to, size_t len, uint64_t id)
{
    struct poise_rng rng;

    poise_rng_seed(&rng, id + 1000);
    data_fill(to, len, id % 16 == 15 ? DATA_ZEROS : DATA_RANDOM, &rng);
}

/* Send the tiles with these numbers as one update. */
static inline int send_tiles(struct end *from, struct end *to, uint32_t stream,
                             const uint64_t *ids, size_t count)
{
    struct poise_dedup_piece pieces[MOST] = {0};
    struct poise_dedup_update update = {
        .pieces = pieces, .count = count, .element_bytes = PIXEL};
    struct record *record;
    uint64_t sequence = UINT64_MAX;
    int rc;

    assert_true(count <= MOST && to->sent[stream] < UPDATES);
    if (to->sent[stream] % 16 == 0) {
        to->records[stream] =
            realloc(to->records[stream],
                    (to->sent[stream] + 16) * sizeof(struct record));
        assert_non_null(to->records[stream]);
    }
    record = &to->records[stream][to->sent[stream]];
    *record = (struct record){.count = count};
    for (size_t i = 0; i < count; i++) {
        /* Few are smaller than the others. */
        uint32_t rows = ids[i] % 11 == 0 ? SIDE / 2 : SIDE;
        struct poise_dedup_piece *piece = &pieces[i];
        piece->kind = ids[i] % 16 == 15   ? POISE_DEDUP_FILL
                      : ids[i] % 16 == 14 ? POISE_DEDUP_LITERAL
                                          : POISE_DEDUP_SEGMENT;
        piece->period = 1;
        piece->data = record->sent + record->len;
        piece->len = (size_t)rows * SIDE * PIXEL;
        piece->place = (struct poise_dedup_place){
            100 - SIDE * i + (ids[i] << 40), (uint32_t)ids[i], SIDE, rows};
        draw_tile(record->sent + record->len, piece->len, ids[i]);
        record->places[i] = piece->place;
        record->lens[i] = piece->len;
        record->len += piece->len;
    }
    to->sent[stream]++;
    rc = poise_dedup_peer_update(from->peer, stream, &update, &sequence);
    record->is_unordered = rc == 1;
    if (rc == 1) {
        assert_int_equal(sequence, to->sent[stream] - 1);
    }
    return rc;
}

static inline void know_tiles(struct end *end, uint64_t first, uint64_t count)
{
    for (uint64_t id = first; id < first + count; id++) {
        unsigned char tile[PIXEL * SIDE * SIDE];
        uint64_t at;
        draw_tile(tile, sizeof tile, id);
        assert_int_equal(
            poise_dedup_store_add(end->store, tile, sizeof tile, &at), 0);
    }
}

/* One has sent to the other before. */
static inline void make_known(const struct end *to, const struct end *by)
{
    bool is_new = false;

    assert_int_equal(
        wire_sender_mark(by->store, dedup_store_key(to->store), &is_new), 0);
    assert_true(is_new);
}

/* Everything that was sent is there, and nothing is kept. */
static inline void check_all(const struct end *end)
{
    const struct wire_receiver *receiver = &end->peer->receiver;

    for (uint32_t stream = 0; stream < STREAMS; stream++) {
        for (uint64_t i = 0; i < end->sent[stream]; i++) {
            const struct record *record = &end->records[stream][i];
            if (record->is_unordered) {
                assert_true(record->is_there);
                assert_memory_equal(record->received, record->sent,
                                    record->len);
            }
        }
    }
    assert_int_equal(end->wrong, end->corrected);
    assert_true(receiver->bytes == 0 && receiver->guessed == 0 &&
                receiver->hidden == 0);
}

#endif
