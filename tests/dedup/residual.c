/* What is new in arrays of floats, by what it differs from what is foretold:
 * exact to the bit whatever the bits are, on the wire too. */
#include "data.h"
#include "dedup/protocol/internal.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { ROWS = 96, COLUMNS = 160, CELLS = ROWS * COLUMNS };

/* A plate as a solver leaves it after some steps from a hot edge. */
static void make_plate(double *now, int steps)
{
    static double old[CELLS]; /* kept off the stack */

    for (int i = 0; i < CELLS; i++) {
        now[i] = sin(i / COLUMNS / 9.) + cos(i % COLUMNS / 11.);
    }
    for (; steps > 0; steps--) {
        memcpy(old, now, sizeof old);
        for (int i = COLUMNS + 1; i < CELLS - COLUMNS - 1; i++) {
            now[i] = (old[i - 1] + old[i + 1] + old[i - COLUMNS] +
                      old[i + COLUMNS]) /
                     4;
        }
    }
}

/* ---- alone -------------------------------------------------------------- */

static void fill(unsigned char *data, size_t len, uint32_t element,
                 struct poise_rng *rng)
{
    static const uint64_t odd[] = {0,
                                   UINT64_C(0x8000000000000000),
                                   UINT64_C(0x7ff0000000000000),
                                   UINT64_C(0xfff8000000000123),
                                   UINT64_C(0x7ff0000000000001),
                                   UINT64_MAX,
                                   0x7f800001,
                                   0xffc00042,
                                   0x80000000,
                                   1};
    uint64_t kind = poise_rng_below(rng, 4);

    data_fill(data, len, (enum dedup_data)poise_rng_below(rng, DATA_KINDS),
              rng);
    for (size_t i = 0; i + element <= len && kind > 0; i += element) {
        double value = sin((double)i / 3000);
        float small = (float)value;
        uint64_t other = odd[poise_rng_below(rng, sizeof odd / sizeof *odd)];
        if (kind == 1 || poise_rng_below(rng, 40) != 0) {
            memcpy(data + i, element == 8 ? (void *)&value : (void *)&small,
                   element);
        } else {
            memcpy(data + i, &other, element);
        }
    }
}

static void test_round_trip(void **state)
{
    enum { MOST = 6000, BEFORE = 9000 };
    static unsigned char data[BEFORE + MOST], back[BEFORE + MOST];
    struct poise_rng rng;

    (void)state;
    poise_rng_seed(&rng, 1);
    for (int round = 0; round < 400; round++) {
        struct wire_grid grid = {.element = round % 2 ? 4 : 8};
        size_t len = poise_rng_below(&rng, MOST);
        size_t before = poise_rng_below(&rng, BEFORE);
        struct poise_buf packed = {0};
        unsigned mode = 256;

        for (size_t i = 0; i < WIRE_STRIDES; i++) {
            grid.strides[i] = round % 7 ? 1 + poise_rng_below(&rng, 700)
                                        : poise_rng_next(&rng);
        }
        fill(data, before + len, grid.element, &rng);
        while (!wire_residual_is_mode(&grid, mode)) {
            mode = (unsigned)poise_rng_below(&rng, 256);
        }
        assert_int_equal(wire_residual_make(&grid, mode, data + before, len,
                                            before, &packed),
                         0);
        memcpy(back, data, before);
        memset(back + before, 0xa5, len);
        assert_int_equal(
            wire_residual_take(&grid, mode, (unsigned char *)packed.data,
                               packed.len, back + before, len, before),
            0);
        assert_memory_equal(back, data, before + len);
        if (len > 0) {
            /* Cut short, or altered, it is wrong or something else. */
            assert_int_equal(
                wire_residual_take(&grid, mode, (unsigned char *)packed.data,
                                   packed.len - 1, back + before, len, before),
                -EBADMSG);
            packed.data[poise_rng_below(&rng, packed.len)] ^= 4;
            wire_residual_take(&grid, mode, (unsigned char *)packed.data,
                               packed.len, back + before, len, before);
        }
        poise_buf_free(&packed);
    }
}

/* Smooth rows are worth it, and the mode that is taken knows of rows. */
static void test_smooth(void **state)
{
    static double plate[CELLS]; /* kept off the stack */
    struct poise_dedup_cut_options array = {.element = 8,
                                            .shape = {ROWS, COLUMNS}};
    struct wire_grid grid;
    struct poise_buf packed = {0};
    size_t half = sizeof plate / 2;
    unsigned mode;

    (void)state;
    for (size_t i = 0; i < CELLS; i++) {
        /* Rows are rough, and like each other. */
        plate[i] = (double)poise_hash_u64(i % COLUMNS) / 1e19 +
                   sin((double)i / COLUMNS / 90) / 9;
    }
    wire_grid_of(&array, &grid);
    assert_int_equal(grid.strides[0], 1);
    assert_int_equal(grid.strides[1], COLUMNS);
    assert_int_equal(grid.strides[2], CELLS);
    mode = wire_residual_best(&grid, (unsigned char *)plate + half, half, half);
    assert_true(mode >> 2 & 3);
    assert_int_equal(wire_residual_make(&grid, mode,
                                        (unsigned char *)plate + half, half,
                                        half, &packed),
                     0);
    assert_true(packed.len < half * 2 / 3);
    poise_buf_free(&packed);
    wire_grid_of(NULL, &grid);
    assert_int_equal(grid.element, 0);
}

/* ---- on the wire -------------------------------------------------------- */

enum { FAR = 2 };

struct end {
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer;
    struct poise_buf received;
};

static int deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    struct end *end = arg;
    struct poise_dedup_joiner joiner = {end->received.len};

    (void)stream;
    return poise_dedup_join(&joiner, piece, &end->received);
}

static void make_end(struct end *end, struct poise_dedup_peer_options options,
                     uint32_t bits)
{
    struct poise_dedup_store_options store = {.bits = bits,
                                              .memory_bytes = 16 << 20};

    if (!end->store) {
        assert_int_equal(poise_dedup_store_open(NULL, &store, &end->store), 0);
    }
    options.store = end->store;
    options.deliver = deliver;
    options.arg = end;
    assert_int_equal(poise_dedup_peer_create(&options, &end->peer), 0);
}

static int carry(struct end *from, struct end *to, size_t *sum)
{
    const void *data;
    size_t len = poise_dedup_peer_output(from->peer, &data);
    int code = len ? poise_dedup_peer_feed(to->peer, data, len) : 0;

    poise_dedup_peer_took(from->peer, len);
    *sum += len;
    return code;
}

/* Until nobody has anything to say: bytes, both ways. */
static size_t carry_all(struct end *near, struct end *far, int *err)
{
    size_t sum = 0, before;

    do {
        before = sum;
        *err = carry(near, far, &sum);
        *err = *err < 0 ? *err : carry(far, near, &sum);
    } while (sum > before && *err == 0);
    return sum;
}

static const struct poise_dedup_cut_options plate_cut = {
    .average = 256, .element = 8, .shape = {ROWS, COLUMNS}};

/* Steps of a plate, the caches kept from one to the next. */
static void test_wire(void **state)
{
    enum { LEN = 2 * CELLS * sizeof(double) - 3, PORTION = 9000 };
    static double plate[2][CELLS]; /* kept off the stack */

    (void)state;
    for (uint32_t bits = 10; bits <= 40; bits += 30) {
        struct end near = {0}, far = {0};
        for (int step = 0; step < 4; step++) {
            struct poise_dedup_peer_options options = {.method = &dedup_floats,
                                                       .cut = plate_cut};
            struct poise_dedup_peer_stats stats;
            size_t sent;
            int code;
            make_plate(plate[0], 20 * step);
            make_plate(plate[1], 20 * step + 20);
            make_end(&near, options, bits);
            make_end(&far, options, bits);
            carry_all(&near, &far, &code);
            sent = 0;
            for (size_t at = 0; at < LEN; at += PORTION) {
                size_t n = LEN - at < PORTION ? LEN - at : PORTION;
                assert_int_equal(
                    poise_dedup_peer_send(near.peer, 1,
                                          (unsigned char *)plate + at, n),
                    0);
                assert_int_equal(poise_dedup_peer_flush(near.peer), 0);
                sent += carry_all(&near, &far, &code);
            }
            assert_int_equal(poise_dedup_peer_end(near.peer, 1), 0);
            assert_int_equal(poise_dedup_peer_flush(near.peer), 0);
            sent += carry_all(&near, &far, &code);
            assert_int_equal(code, 0);
            assert_int_equal(far.received.len, LEN);
            assert_memory_equal(far.received.data, plate, LEN);
            stats = poise_dedup_peer_stats(near.peer);
            if (bits == 40) {
                assert_true(stats.by_residual > sizeof plate / 8);
                assert_true(sent < sizeof plate * 3 / 4);
            }
            poise_buf_free(&far.received);
            poise_dedup_peer_destroy(near.peer);
            poise_dedup_peer_destroy(far.peer);
        }
        poise_dedup_store_close(near.store);
        poise_dedup_store_close(far.store);
    }
}

/* Several receivers hear them, too. */
static void test_multicast(void **state)
{
    static double plate[CELLS]; /* kept off the stack */
    struct poise_dedup_peer_options options = {
        .method = &dedup_floats, .cut = plate_cut, .is_leader = true};
    struct end lead = {0}, here[FAR] = {{0}}, far[FAR] = {{0}};
    int code;

    (void)state;
    make_plate(plate, 30);
    make_end(&lead, options, 0);
    options.is_leader = false;
    options.leader = lead.peer;
    for (int i = 0; i < FAR; i++) {
        here[i].store = lead.store;
        make_end(&here[i], options, 0);
        make_end(&far[i], (struct poise_dedup_peer_options){0}, 0);
        carry_all(&here[i], &far[i], &code);
    }
    assert_int_equal(poise_dedup_peer_send(lead.peer, 1, plate, sizeof plate),
                     0);
    assert_int_equal(poise_dedup_peer_end(lead.peer, 1), 0);
    assert_int_equal(poise_dedup_peer_flush(lead.peer), 0);
    assert_true(poise_dedup_peer_stats(lead.peer).by_residual > 0);
    for (int i = 0; i < FAR; i++) {
        carry_all(&here[i], &far[i], &code);
        assert_int_equal(code, 0);
        assert_int_equal(far[i].received.len, sizeof plate);
        assert_memory_equal(far[i].received.data, plate, sizeof plate);
        poise_buf_free(&far[i].received);
        poise_dedup_peer_destroy(here[i].peer);
        poise_dedup_peer_destroy(far[i].peer);
        poise_dedup_store_close(far[i].store);
    }
    poise_dedup_peer_destroy(lead.peer);
    poise_dedup_store_close(lead.store);
}

/* Messages that make no sense in themselves. */
static void test_nonsense(void **state)
{
    static const unsigned char messages[][16] = {
        {WIRE_RESIDUAL, 1, 8, 5, 1, 1, 1, 0},       /* elements of 5 */
        {WIRE_RESIDUAL, 1, 8, 4, 3, 1, 1, 0},       /* three times */
        {WIRE_RESIDUAL, 1, 8, 4, 1, 0, 1, 0},       /* from itself */
        {WIRE_RESIDUAL, 1, 8, 4, 0x80, 2, 1, 1, 0}, /* a mode too far */
        {WIRE_RESIDUAL, 1, 8, 4, 0xaa, 1, 1, 1, 1, 1, 1, 0}, /* too often */
        {WIRE_RESIDUAL, 1, 0, 4, 1, 1, 1, 0},                /* no segment */
        {WIRE_RESIDUAL, 1, 8, 4, 1, 1, 0x7f, 0},             /* cut short */
    };

    (void)state;
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        struct end near = {0}, far = {0};
        int code;
        make_end(&near, (struct poise_dedup_peer_options){0}, 0);
        make_end(&far, (struct poise_dedup_peer_options){0}, 0);
        carry_all(&near, &far, &code);
        poise_buf_append(&near.peer->blocks.raw, messages[i], 13);
        assert_int_equal(wire_blocks_close(&near.peer->blocks), 0);
        carry_all(&near, &far, &code);
        assert_int_equal(code, -EBADMSG);
        poise_dedup_peer_destroy(near.peer);
        poise_dedup_peer_destroy(far.peer);
        poise_dedup_store_close(near.store);
        poise_dedup_store_close(far.store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_smooth),
        cmocka_unit_test(test_wire),       cmocka_unit_test(test_multicast),
        cmocka_unit_test(test_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
