/*
 * The wire's repair: caches that hold the same in another order, or not all of
 * it, cost fingerprints and what is missing, and nothing that a peer says of an
 * item is believed.
 */
#include "../temporary.h"
#include "dedup/protocol/received.h"
#include "ends.h"

#include <poise/store.h>

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

static char folders[4][TEMPORARY_BYTES];

/* Ends whose caches are kept, by one folder each. */
static void open_kept(struct end *end, int i, uint32_t bits)
{
    struct poise_dedup_store_options options = {.bits = bits};

    if (folders[i][0] == 0) {
        assert_non_null(mkdtemp(temporary_name(folders[i], "repair")));
    }
    assert_int_equal(poise_dedup_store_open(folders[i], &options, &end->store),
                     0);
}

static int remove_folders(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        DIR *dir = folders[i][0] ? opendir(folders[i]) : NULL;
        struct dirent *entry;
        while (dir && (entry = readdir(dir))) {
            unlinkat(dirfd(dir), entry->d_name, 0);
        }
        if (dir) {
            closedir(dir);
            rmdir(folders[i]);
        }
        folders[i][0] = 0;
    }
    return 0;
}

static void connect_both(struct end ends[2], uint32_t average)
{
    connect_end(&ends[0], NULL, average);
    connect_end(&ends[1], NULL, average);
}

static void disconnect_both(struct end ends[2])
{
    disconnect(&ends[0]);
    disconnect(&ends[1]);
}

/* ---- what it costs ------------------------------------------------------ */

enum { VERSIONS = 5 };

/* Versions of data, a connection for each; bytes of each. The first connection
 * breaks off when so much arrived. */
static void send_versions(int first, unsigned char *const versions[VERSIONS],
                          const size_t lens[VERSIONS], size_t stop,
                          uint64_t bytes[VERSIONS])
{
    struct end ends[2] = {0};

    for (int i = 0; i < 2; i++) {
        open_kept(&ends[i], first + i, 0);
    }
    if (stop > 0) {
        connect_both(ends, 0);
        run(&ends[0], &ends[1], NULL);
        assert_int_equal(
            poise_dedup_peer_send(ends[0].peer, 1, versions[0], lens[0]), 0);
        speak(&ends[0], &ends[1]);
        ends[1].coming.len = stop;
        assert_int_equal(hear(&ends[1], NULL), 0);
        disconnect_both(ends);
    }
    for (int i = 0; i < VERSIONS; i++) {
        connect_both(ends, 0);
        bytes[i] = transfer(&ends[0], &ends[1], versions[i], lens[i], NULL);
        assert_int_equal(poise_dedup_peer_stats(ends[0].peer).repairs, 0);
        disconnect_both(ends);
    }
    close_end(&ends[0]);
    close_end(&ends[1]);
}

/* After a connection that broke off no version costs much more than where none
 * did. */
static void test_broken_off(void **state)
{
    enum { MANY = 2 * LEN };
    unsigned char *versions[VERSIONS];
    size_t lens[VERSIONS];
    uint64_t calm[VERSIONS], broken[VERSIONS], sums[2] = {0};

    (void)state;
    versions[0] = data_make(MANY, DATA_RANDOM, 71);
    lens[0] = MANY;
    for (int i = 1; i < VERSIONS; i++) {
        lens[i] = lens[i - 1];
        versions[i] = edit(versions[i - 1], &lens[i], 60, 72 + (uint64_t)i);
    }
    send_versions(0, versions, lens, 0, calm);
    send_versions(2, versions, lens, MANY * 5 / 8, broken);
    for (int i = 0; i < VERSIONS; i++) {
        print_message("version %d: %llu bytes, %llu after a break\n", i,
                      (unsigned long long)calm[i],
                      (unsigned long long)broken[i]);
        sums[0] += i > 0 ? calm[i] : 0;
        sums[1] += i > 0 ? broken[i] : 0;
        free(versions[i]);
    }
    assert_in_range(broken[0], MANY / 3, MANY / 2 + MANY / 20);
    assert_in_range(sums[1], 1, 2 * sums[0]);
}

/* A receiver that has it from somebody else, in another order, and without some
 * of it. */
static uint64_t send_shuffled(size_t part, size_t left_out, uint32_t bits,
                              uint64_t *repairs)
{
    enum { PARTS = 16 };
    unsigned char *data = data_make(PARTS * part, DATA_RANDOM, 81);
    unsigned char *other = malloc(PARTS * part);
    struct end ends[2] = {0}, from = {0};
    size_t at = 0;
    uint64_t bytes;

    assert_true(data && other);
    /* Parts in reverse, each without its end. */
    for (size_t i = PARTS; i-- > 0; at += part - left_out) {
        memcpy(other + at, data + i * part, part - left_out);
    }
    for (int i = 0; i < 2; i++) {
        open_kept(&ends[i], i, bits);
    }
    make_store(&from, 0);
    /* The sender knows the data, and that receiver. */
    connect_end(&ends[0], NULL, 0);
    connect_end(&from, NULL, 0);
    transfer(&ends[0], &from, data, PARTS * part, NULL);
    disconnect(&ends[0]);
    disconnect(&from);
    connect_both(ends, 0);
    transfer(&ends[0], &ends[1], "known", 5, NULL);
    disconnect_both(ends);
    poise_dedup_store_close(from.store);
    make_store(&from, 0);
    connect_end(&from, NULL, 0);
    connect_end(&ends[1], NULL, 0);
    transfer(&from, &ends[1], other, at, NULL);
    close_end(&from);
    disconnect(&ends[1]);
    connect_both(ends, 0);
    bytes = transfer(&ends[0], &ends[1], data, PARTS * part, NULL);
    assert_true(poise_dedup_peer_stats(ends[0].peer).requests > 0);
    *repairs = poise_dedup_peer_stats(ends[0].peer).repairs;
    close_end(&ends[0]);
    close_end(&ends[1]);
    remove_folders(NULL);
    free(data);
    free(other);
    return bytes;
}

static void test_shuffled(void **state)
{
    uint64_t repairs, bytes = send_shuffled(LEN / 16, 0, 0, &repairs);

    (void)state;
    print_message("in another order: %llu bytes of %d\n",
                  (unsigned long long)bytes, LEN);
    assert_in_range(bytes, 1000, LEN / 20);
    assert_int_equal(repairs, 0);
    bytes = send_shuffled(LEN / 16, 3000, 0, &repairs);
    print_message("and without %d: %llu bytes of %d\n", 16 * 3000,
                  (unsigned long long)bytes, LEN);
    assert_in_range(bytes, 16 * 3000, LEN / 20 + 16 * 3000 * 11 / 10);
    assert_int_equal(repairs, 0);
    /* Fingerprints so short that most are wrong: all of it is supplied. */
    send_shuffled(LEN / 16, 3000, 8, &repairs);
    assert_true(repairs > 0);
}

/* ---- who asks for what it may not --------------------------------------- */

/* Ends in memory that ask for names as those with kept caches do. */
static void begin(struct end ends[2])
{
    make_store(&ends[0], 0);
    make_store(&ends[1], 0);
    connect_both(ends, 0);
    run(&ends[0], &ends[1], NULL);
    ends[0].peer->knows_items = ends[1].peer->knows_items = true;
}

/* A sender that refers to what the other end has, in a group to which nothing
 * has been answered: 1. */
static void refer(struct end ends[2], const unsigned char *data, size_t len)
{
    begin(ends);
    transfer(&ends[0], &ends[1], data, len, NULL);
    assert_int_equal(poise_dedup_peer_send(ends[0].peer, 1, data, len), 0);
    assert_int_equal(poise_dedup_peer_flush(ends[0].peer), 0);
}

static int say(struct end *from, struct end *to, const unsigned char *bytes,
               size_t len)
{
    poise_buf_append(&from->peer->blocks.raw, bytes, len);
    assert_int_equal(wire_blocks_close(&from->peer->blocks), 0);
    speak(from, to);
    return hear(to, NULL);
}

static void test_asked_too_much(void **state)
{
    static const struct {
        unsigned char bytes[32];
        size_t len;
        int code;
    } cases[] = {
        {{WIRE_ITEM_WANTED, 1, 1, 1}, 4, 0},
        /* Another group, no item, none that is, one twice, no reference. */
        {{WIRE_ITEM_WANTED, 9, 1, 1}, 4, -EBADMSG},
        {{WIRE_ITEM_WANTED, 1, 0}, 3, -EBADMSG},
        {{WIRE_ITEM_WANTED, 1, 1, 0}, 4, -EBADMSG},
        {{WIRE_ITEM_WANTED, 1, 1, 120}, 4, -EBADMSG},
        {{WIRE_ITEM_WANTED, 1, 0xff, 0xff, 0xff, 0x7f, 1}, 7, -EBADMSG},
        {{WIRE_ITEM_WANTED, 1, 1}, 3, -EBADMSG},
        {{WIRE_ITEM_WANTED, 1, 1, 1, WIRE_ITEM_WANTED, 1, 1, 1}, 8, -EBADMSG},
        /* What was not named; nothing; what is not there; twice. */
        {{WIRE_ITEM_LACKS, 1, 0, 1, 1}, 5, -EBADMSG},
        {{WIRE_ITEM_WANTED, 1, 1, 1, WIRE_ITEM_LACKS, 1, 0, 1, 1}, 9, 0},
        {{WIRE_ITEM_WANTED, 1, 1, 1, WIRE_ITEM_LACKS, 1, 0, 0}, 8, -EBADMSG},
        {{WIRE_ITEM_WANTED, 1, 1, 1, WIRE_ITEM_LACKS, 1, 99, 1, 1},
         9,
         -EBADMSG},
        {{WIRE_ITEM_WANTED, 1, 1, 1, WIRE_ITEM_LACKS, 9, 0, 1, 1}, 9, -EBADMSG},
        {{WIRE_ITEM_WANTED, 1, 1, 1, WIRE_ITEM_LACKS, 1, 0, 2, 1, 0},
         10,
         -EBADMSG},
        {{WIRE_ITEM_WANTED, 1, 1, 1, WIRE_ITEM_LACKS, 1, 0, 1, 0xff, 0xff, 0xff,
          0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
         18,
         -EBADMSG},
        {{WIRE_ITEM_WANTED, 1, 1, 1, WIRE_ITEM_LACKS, 1, 0, 1, 1,
          WIRE_ITEM_LACKS, 1, 0, 1, 1},
         14,
         -EBADMSG},
        /* Names, a part, twice all of it; and once more. */
        {{WIRE_ITEM_WANTED, 1, 1, 1, WIRE_ITEM_LACKS, 1, 0, 1, 1, WIRE_REQUEST,
          1, 0, WIRE_REQUEST, 1, 0},
         15,
         0},
        {{WIRE_REQUEST, 1, 0, WIRE_REQUEST, 1, 0, WIRE_REQUEST, 1, 0},
         9,
         -EBADMSG},
    };
    unsigned char *data = data_make(20000, DATA_RANDOM, 91);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct end ends[2] = {0};
        refer(ends, data, 20000);
        assert_int_equal(say(&ends[1], &ends[0], cases[i].bytes, cases[i].len),
                         cases[i].code);
        close_end(&ends[0]);
        close_end(&ends[1]);
    }
    free(data);
}

/* ---- who names what it was not asked for -------------------------------- */

/* A receiver that asks for the names of item 0 of group 0, as it has only the
 * beginning of that run. */
static void want(struct end ends[2])
{
    struct poise_dedup_store *store;
    struct poise_buf raw = {0};
    uint64_t at;
    static const unsigned char wrong[POISE_DEDUP_GROUP_BYTES];

    begin(ends);
    store = ends[1].store;
    for (const char *text = "abcd"; *text; text += 2) {
        assert_int_equal(poise_dedup_store_add(store, text, 2, &at), 0);
    }
    poise_buf_putc(&raw, WIRE_RUN);
    wire_put_print(&raw, poise_dedup_store_fingerprint(store, "ab", 2),
                   poise_dedup_store_info(store).bits);
    poise_buf_varint(&raw, 3);
    poise_buf_putc(&raw, WIRE_GROUP);
    poise_buf_append(&raw, wrong, sizeof wrong);
    assert_int_equal(say(&ends[0], &ends[1], (void *)raw.data, raw.len), 0);
    poise_buf_free(&raw);
    assert_int_equal(ends[1].peer->receiver.oldest->items[0].state,
                     ITEM_REQUESTED);
}

/* Three names: of "cd", of nothing, of "ab". */
static void put_names(struct poise_buf *out, struct poise_dedup_store *store)
{
    uint32_t bits = poise_dedup_store_info(store).bits;

    poise_buf_append(out, "\0\0\3", 3);
    wire_put_print(out, poise_dedup_store_fingerprint(store, "cd", 2), bits);
    wire_put_print(out, poise_dedup_store_fingerprint(store, "zz", 2), bits);
    wire_put_print(out, poise_dedup_store_fingerprint(store, "ab", 2), bits);
}

static void test_named_too_much(void **state)
{
    static const struct {
        bool named; /* three names come first */
        unsigned char bytes[16];
        size_t len;
        int code;
    } cases[] = {
        {true, {0}, 0, 0},
        /* No names; too many; fewer than it says; of another item. */
        {false, {WIRE_ITEM_PRINTS, 0, 0, 0}, 4, -EBADMSG},
        {false, {WIRE_ITEM_PRINTS, 0, 0, 0x81, 0x80, 0x10}, 6, -EBADMSG},
        {false, {WIRE_ITEM_PRINTS, 0, 0, 2, 1, 2, 3, 4, 5}, 9, -EBADMSG},
        {false, {WIRE_ITEM_PRINTS, 0, 1, 1, 1, 2, 3, 4, 5}, 9, -EBADMSG},
        {false, {WIRE_ITEM_PRINTS, 1, 0, 1, 1, 2, 3, 4, 5}, 9, -EBADMSG},
        /* Twice; too little, too much for the one gap. */
        {true, {WIRE_ITEM_PRINTS, 0, 0, 1, 1, 2, 3, 4, 5}, 9, -EBADMSG},
        {true, {WIRE_SUPPLY, 0, 0, 0}, 4, -EBADMSG},
        {true, {WIRE_SUPPLY, 0, 0, 2, 1, 1, 'x', 'y'}, 8, -EBADMSG},
        {true, {WIRE_SUPPLY, 0, 0, 1, 2, 'x'}, 6, -EBADMSG},
        /* What fits, and is not what the hash says: all is asked for. */
        {true, {WIRE_SUPPLY, 0, 0, 1, 1, 'x'}, 6, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct end ends[2] = {0};
        struct poise_buf raw = {0};
        want(ends);
        if (cases[i].named) {
            poise_buf_putc(&raw, WIRE_ITEM_PRINTS);
            put_names(&raw, ends[1].store);
        }
        poise_buf_append(&raw, cases[i].bytes, cases[i].len);
        assert_int_equal(say(&ends[0], &ends[1], (void *)raw.data, raw.len),
                         cases[i].code);
        if (cases[i].code == 0) {
            const struct wire_received *group = ends[1].peer->receiver.oldest;
            assert_int_equal(group->is_repaired, cases[i].len > 0);
            assert_int_equal(group->items[0].state, ITEM_REQUESTED);
        }
        assert_int_equal(ends[1].received[0].len, 0);
        poise_buf_free(&raw);
        close_end(&ends[0]);
        close_end(&ends[1]);
    }
}

/* Any piece of memory that is missing meanwhile: an error, and no more. */
static void test_no_memory(void **state)
{
    bool struck = true;

    (void)state;
    for (uint64_t k = 1; struck; k++) {
        struct end ends[2] = {0};
        struct poise_buf raw = {0};
        int code;
        want(ends);
        poise_buf_putc(&raw, WIRE_ITEM_PRINTS);
        put_names(&raw, ends[1].store);
        poise_buf_append(&raw, "\15\0\0\1\1x", 6);
        poise_buf_append(&ends[0].peer->blocks.raw, raw.data, raw.len);
        assert_int_equal(wire_blocks_close(&ends[0].peer->blocks), 0);
        speak(&ends[0], &ends[1]);
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        code = hear(&ends[1], NULL);
        struck = poise_fault_calls(POISE_FAULT_ALLOC) >= k;
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        assert_int_equal(code, struck ? -ENOMEM : 0);
        poise_buf_free(&raw);
        close_end(&ends[0]);
        close_end(&ends[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_broken_off, remove_folders),
        cmocka_unit_test_teardown(test_shuffled, remove_folders),
        cmocka_unit_test(test_asked_too_much),
        cmocka_unit_test(test_named_too_much),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
