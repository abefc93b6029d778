/* Which segmenter is chosen for what data, by itself and on the wire. */
#include "data.h"
#include "dedup/protocol/internal.h"

#include <poise/store.h>

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { LEN = POISE_DEDUP_SAMPLE };

static struct poise_dedup_choice choose(struct poise_dedup_store *store,
                                        const void *data, size_t len)
{
    struct poise_dedup_choice choice, again;

    assert_int_equal(poise_dedup_choose(store, data, len, NULL, &choice), 0);
    assert_int_equal(poise_dedup_choose(store, data, len, NULL, &again), 0);
    assert_ptr_equal(choice.method, again.method);
    assert_int_equal(choice.cut.average, again.cut.average);
    assert_true(choice.cost == again.cost);
    return choice;
}

static unsigned char *waves(uint32_t element)
{
    unsigned char *data = malloc(LEN);
    double at = 0;

    assert_non_null(data);
    for (size_t i = 0; i + element <= LEN; i += element, at += .001) {
        double value = sin(at) + cos(at * sqrt(2)) + 3;
        float small = (float)value;
        memcpy(data + i, element == 8 ? (void *)&value : (void *)&small,
               element);
    }
    return data;
}

static void test_alone(void **state)
{
    unsigned char *data = data_make(LEN, DATA_RANDOM, 1);
    struct poise_dedup_choice choice = choose(NULL, data, LEN);
    struct poise_dedup_cut_options wanted = {.average = 1024};

    (void)state;
    assert_ptr_equal(choice.method, &dedup_gear);
    assert_int_equal(choice.cut.average, 256);
    assert_true(choice.cost > LEN && choice.cost < LEN + LEN / 20);
    assert_int_equal(poise_dedup_choose(NULL, data, LEN, &wanted, &choice), 0);
    assert_ptr_equal(choice.method, &dedup_gear);
    assert_int_equal(choice.cut.average, 1024);
    /* Blocks of one size, twice in another order. */
    for (size_t i = 0; i < LEN / 2; i += 1024) {
        memcpy(data + LEN / 2 + (i * 37 + 5 * 1024) % (LEN / 2), data + i,
               1024);
    }
    choice = choose(NULL, data, LEN);
    assert_ptr_equal(choice.method, &dedup_fixed);
    assert_int_equal(poise_dedup_choose(NULL, data, 0, NULL, &choice), 0);
    assert_ptr_equal(choice.method, &dedup_gear);
    free(data);
    for (uint32_t element = 4; element <= 8; element += 4) {
        data = waves(element);
        choice = choose(NULL, data, LEN);
        assert_ptr_equal(choice.method, &dedup_floats);
        assert_int_equal(choice.cut.element, element);
        free(data);
    }
}

static int keep(const struct poise_dedup_piece *piece, void *arg)
{
    uint64_t at;

    return poise_dedup_store_add(arg, piece->data, piece->len, &at);
}

/* Data whose segments the cache has are cut as they were. */
static void test_cached(void **state)
{
    static const uint32_t averages[] = {64, 1024};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        unsigned char *data = data_make(LEN, DATA_RANDOM, 2 + i);
        struct poise_dedup_cut_options cut = {averages[i]};
        struct poise_dedup_segmenter *segmenter;
        struct poise_dedup_store *store;
        struct poise_dedup_choice choice;
        uint64_t segments;

        assert_int_equal(poise_dedup_store_open(NULL, NULL, &store), 0);
        assert_int_equal(poise_dedup_segmenter_create(&dedup_gear, &cut, keep,
                                                      store, &segmenter),
                         0);
        assert_int_equal(poise_dedup_segmenter_feed(segmenter, data, LEN), 0);
        assert_int_equal(poise_dedup_segmenter_flush(segmenter), 0);
        poise_dedup_segmenter_destroy(segmenter);
        segments = poise_dedup_store_info(store).segments;
        choice = choose(store, data, LEN);
        assert_ptr_equal(choice.method, &dedup_gear);
        assert_int_equal(choice.cut.average, averages[i]);
        assert_true(choice.cost < 4096);
        assert_int_equal(poise_dedup_store_info(store).segments, segments);
        assert_int_equal(poise_dedup_store_close(store), 0);
        free(data);
    }
}

/* ---- on the wire -------------------------------------------------------- */

struct end {
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer;
    struct poise_buf received[2];
};

static int deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    struct end *end = arg;
    struct poise_dedup_joiner joiner = {end->received[stream].len};

    return poise_dedup_join(&joiner, piece, &end->received[stream]);
}

static void open_end(struct end *end, const struct poise_dedup_method *method)
{
    struct poise_dedup_peer_options options = {
        .method = method, .deliver = deliver, .arg = end};

    assert_int_equal(poise_dedup_store_open(NULL, NULL, &end->store), 0);
    options.store = end->store;
    assert_int_equal(poise_dedup_peer_create(&options, &end->peer), 0);
}

static void close_end(struct end *end)
{
    poise_dedup_peer_destroy(end->peer);
    assert_int_equal(poise_dedup_store_close(end->store), 0);
    poise_buf_free(&end->received[0]);
    poise_buf_free(&end->received[1]);
}

static void carry(struct end *a, struct end *b)
{
    const void *data;
    size_t len;

    for (int turn = 0; turn < 4; turn++) {
        struct end *from = turn % 2 ? b : a, *to = turn % 2 ? a : b;
        len = poise_dedup_peer_output(from->peer, &data);
        assert_int_equal(poise_dedup_peer_feed(to->peer, data, len), 0);
        poise_dedup_peer_took(from->peer, len);
    }
}

static void test_wire(void **state)
{
    unsigned char *data = waves(8), *little = data_make(999, DATA_WORDS, 1);
    struct end a = {0}, b = {0};
    struct poise_dedup_choice choice;

    (void)state;
    open_end(&a, &dedup_auto);
    open_end(&b, NULL);
    carry(&a, &b);
    /* What is too little decides nothing, and is not kept waiting. */
    assert_int_equal(poise_dedup_peer_send(a.peer, 0, little, 999), 0);
    assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
    carry(&a, &b);
    assert_int_equal(b.received[0].len, 999);
    choice = poise_dedup_peer_choice(a.peer);
    assert_ptr_equal(choice.method, &dedup_gear);
    for (size_t at = 0; at < LEN; at += LEN / 8) {
        assert_int_equal(poise_dedup_peer_send(a.peer, 1, data + at, LEN / 8),
                         0);
        assert_int_equal(poise_dedup_peer_send(a.peer, 0, little, 100), 0);
    }
    assert_int_equal(poise_dedup_peer_send(a.peer, 1, data, 777), 0);
    choice = poise_dedup_peer_choice(a.peer);
    assert_ptr_equal(choice.method, &dedup_floats);
    assert_int_equal(choice.cut.element, 8);
    assert_int_equal(poise_dedup_peer_end(a.peer, 0), 0);
    assert_int_equal(poise_dedup_peer_end(a.peer, 1), 0);
    assert_int_equal(poise_dedup_peer_flush(a.peer), 0);
    carry(&a, &b);
    assert_int_equal(b.received[0].len, 999 + 800);
    assert_int_equal(b.received[1].len, LEN + 777);
    assert_memory_equal(b.received[1].data, data, LEN);
    assert_memory_equal(b.received[1].data + LEN, data, 777);
    close_end(&a);
    close_end(&b);
    free(data);
    free(little);
}

static void test_no_memory(void **state)
{
    unsigned char *data = data_make(20000, DATA_MIXED, 3);

    (void)state;
    for (uint64_t k = 1;; k += 1 + k / 8) {
        struct poise_dedup_choice choice = {0};
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        int code = poise_dedup_choose(NULL, data, 20000, NULL, &choice);
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        if (code == 0) {
            assert_true(k > 10);
            break;
        }
        assert_int_equal(code, -ENOMEM);
        assert_null(choice.method);
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_cached),
        cmocka_unit_test(test_wire),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
