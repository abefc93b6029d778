/*
 * Room comm without MPI: worlds of threads, messages, collectives under delay
 * and reordering, faults, who sits where, and what launchers leave in the
 * environment.
 */
#include "../temporary.h"
#include "comm/internal.h"

#include "../ranks.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)

static const struct poise_local_options rough = {
    .delay_max_ns = 200000, .reorder = true, .seed = 7};

static int receive_one(struct poise_world *world, struct poise_message *out)
{
    int got;
    while ((got = poise_world_receive(world, out)) == 0) {
        poise_world_wait(world, UINT64_MAX);
    }
    return got;
}

/* ---- messages ----------------------------------------------------------- */

static void test_alone(void **state)
{
    (void)state;
    struct poise_world *world;
    struct poise_message message;
    assert_int_equal(poise_world_create(
                         &(struct poise_world_options){.alone = true}, &world),
                     0);
    assert_int_equal(poise_world_size(world), 1);
    assert_int_equal(poise_world_rank(world), 0);
    assert_string_equal(poise_world_name(world), "one process");
    assert_true(poise_world_threads_allowed(world));
    assert_int_equal(poise_world_startup_ns(world), 0);
    assert_int_equal(poise_world_receive(world, &message), 0);
    assert_int_equal(poise_world_send(world, 0, 3, "self", 4), 0);
    assert_int_equal(poise_world_send(world, 0, 4, NULL, 0), 0);
    assert_int_equal(poise_world_receive(world, &message), 1);
    assert_int_equal(message.tag, 3);
    assert_int_equal(message.source, 0);
    assert_memory_equal(message.data, "self", 4);
    poise_message_free(&message);
    assert_int_equal(poise_world_receive(world, &message), 1);
    assert_int_equal(message.len, 0);
    assert_int_equal(poise_world_receive(world, &message), 0);
    assert_int_equal(poise_world_unsent(world), 0);
    assert_int_equal(poise_world_barrier(world), 0);
    assert_int_equal(poise_world_agree(world, 0), 0);
    poise_world_destroy(world);
}

static void test_send_refuses(void **state)
{
    (void)state;
    struct poise_world *world;
    assert_int_equal(poise_world_create_local(1, NULL, &world), 0);
    assert_int_equal(poise_world_send(world, 1, 0, "x", 1), -EINVAL);
    assert_int_equal(poise_world_send(world, -1, 0, "x", 1), -EINVAL);
    assert_int_equal(poise_world_send(world, 0, -1, "x", 1), -EINVAL);
    assert_int_equal(poise_world_send(world, 0, POISE_TAG_MAX + 1, "x", 1),
                     -EINVAL);
    assert_string_equal(poise_error_last()->why, "there is no tag 16384");
    poise_fault_arm(POISE_FAULT_SEND, 2, EIO, false);
    assert_int_equal(poise_world_send(world, 0, 0, "x", 1), 0);
    assert_int_equal(poise_world_send(world, 0, 0, "x", 1), -EIO);
    assert_string_equal(poise_error_last()->doing, "send a message");
    assert_int_equal(poise_world_send(world, 0, 0, "x", 1), 0);
    poise_fault_arm(POISE_FAULT_SEND, 0, 0, false);
    poise_world_destroy(world);
    assert_int_equal(poise_world_create_local(0, NULL, &world), -EINVAL);
}

#define STRESS_MESSAGES 40

/* The bytes of one message are a function of this. */
struct stress_head {
    uint64_t seed;
    int32_t to, number;
};

static void fill(char *data, size_t len, uint64_t seed)
{
    struct poise_rng rng;
    poise_rng_seed(&rng, seed);
    for (size_t at = 0; at < len; at += 8) {
        uint64_t value = poise_rng_next(&rng);
        memcpy(data + at, &value, len - at < 8 ? len - at : 8);
    }
}

static size_t stress_len(struct poise_rng *rng)
{
    uint64_t kind = poise_rng_below(rng, 100);
    uint64_t limit = kind < 80 ? 200 : kind < 98 ? 100000 : 4 << 20;
    return (size_t)poise_rng_below(rng, limit);
}

static int stress_send(struct poise_world *world, struct poise_rng *rng, int to,
                       int number)
{
    size_t len = stress_len(rng);
    struct stress_head head = {
        .seed = poise_rng_next(rng), .to = to, .number = number};
    char *data = malloc(sizeof head + len);
    EXPECT(data);
    memcpy(data, &head, sizeof head);
    fill(data + sizeof head, len, head.seed);
    int code = poise_world_send(world, to, number, data, sizeof head + len);
    free(data);
    return code;
}

static int stress_check(struct poise_world *world, struct poise_message *m,
                        int *seen)
{
    struct stress_head head;
    EXPECT(m->len >= sizeof head);
    memcpy(&head, m->data, sizeof head);
    EXPECT(head.to == poise_world_rank(world));
    EXPECT(head.number == m->tag);
    size_t len = m->len - sizeof head;
    char *expected = malloc(len + 1);
    EXPECT(expected);
    fill(expected, len, head.seed);
    int differ = memcmp(expected, (char *)m->data + sizeof head, len);
    free(expected);
    EXPECT(differ == 0);
    int slot = m->source * STRESS_MESSAGES + head.number;
    EXPECT(seen[slot] == 0);
    seen[slot] = 1;
    return 0;
}

/* All to all, sizes from 0 to 4 MiB, received while sending. */
static int stress_rank(struct poise_world *world, void *arg)
{
    (void)arg;
    int size = poise_world_size(world);
    int left = size * STRESS_MESSAGES, to_send = left;
    int *seen = calloc((size_t)left, sizeof *seen);
    struct poise_rng rng;
    EXPECT(seen);
    poise_rng_seed(&rng, (uint64_t)poise_world_rank(world) + 99);
    while (left > 0) {
        struct poise_message message;
        if (to_send > 0) {
            to_send--;
            EXPECT(stress_send(world, &rng, to_send % size, to_send / size) ==
                   0);
        }
        int got = poise_world_receive(world, &message);
        EXPECT(got >= 0);
        if (got > 0) {
            int line = stress_check(world, &message, seen);
            poise_message_free(&message);
            EXPECT(line == 0);
            left--;
        } else if (to_send == 0) {
            poise_world_wait(world, UINT64_MAX);
        }
    }
    free(seen);
    EXPECT(poise_world_barrier(world) == 0);
    return 0;
}

static void test_stress(void **state)
{
    (void)state;
    run_clean(8, &rough, stress_rank, NULL);
    run_clean(3, NULL, stress_rank, NULL);
}

static int order_rank(struct poise_world *world, void *arg)
{
    bool *overtaken = arg;
    int from = !poise_world_rank(world);
    for (uint32_t i = 0; i < 200; i++) {
        EXPECT(poise_world_send(world, from, 5, &i, sizeof i) == 0);
    }
    for (uint32_t i = 0; i < 200; i++) {
        struct poise_message message;
        uint32_t value;
        EXPECT(receive_one(world, &message) == 1);
        memcpy(&value, message.data, sizeof value);
        poise_message_free(&message);
        if (value != i) {
            __atomic_store_n(overtaken, true, __ATOMIC_RELAXED);
        }
    }
    return 0;
}

static void test_order(void **state)
{
    (void)state;
    bool overtaken = false;
    struct poise_local_options in_order = {.delay_max_ns = 50000, .seed = 1};
    run_clean(2, NULL, order_rank, &overtaken);
    run_clean(2, &in_order, order_rank, &overtaken);
    assert_false(overtaken);
    run_clean(2, &rough, order_rank, &overtaken);
    assert_true(overtaken);
}

static int drop_rank(struct poise_world *world, void *arg)
{
    (void)arg;
    struct poise_message message;
    int count = 0;
    for (int i = 0; poise_world_rank(world) == 0 && i < 1000; i++) {
        EXPECT(poise_world_send(world, 1, 1, "x", 1) == 0);
    }
    /* Collectives are not dropped, and without delay this one comes after. */
    EXPECT(poise_world_barrier(world) == 0);
    while (poise_world_receive(world, &message) == 1) {
        poise_message_free(&message);
        count++;
    }
    EXPECT(poise_world_rank(world) == 0 ? count == 0
                                        : count > 350 && count < 650);
    return 0;
}

static void test_drop(void **state)
{
    (void)state;
    struct poise_local_options half = {.drop = 0.5, .seed = 3};
    run_clean(2, &half, drop_rank, NULL);
}

/* ---- waiting ------------------------------------------------------------ */

static void *wake_soon(void *arg)
{
    poise_sleep_ns(20 * MS);
    poise_world_wake(arg);
    return NULL;
}

static void test_wait(void **state)
{
    (void)state;
    struct poise_world *world;
    pthread_t thread;
    assert_int_equal(poise_world_create_local(1, NULL, &world), 0);
    /* Over in time. */
    uint64_t begun = poise_clock_ns();
    poise_world_wait(world, 5 * MS);
    assert_true(poise_clock_ns() - begun >= 5 * MS);
    /* A wake-up that came before the wait is not lost. */
    poise_world_wake(world);
    poise_world_wait(world, UINT64_MAX);
    /* One that comes during it. */
    pthread_create(&thread, NULL, wake_soon, world);
    poise_world_wait(world, UINT64_MAX);
    pthread_join(thread, NULL);
    /* A message that is there already. */
    assert_int_equal(poise_world_send(world, 0, 0, "x", 1), 0);
    poise_world_wait(world, UINT64_MAX);
    poise_world_destroy(world);
}

static int echo_rank(struct poise_world *world, void *arg)
{
    (void)arg;
    struct poise_message message;
    for (int i = 0; i < 50; i++) {
        if (poise_world_rank(world) == 0) {
            EXPECT(poise_world_send(world, 1, 0, &i, sizeof i) == 0);
        }
        EXPECT(receive_one(world, &message) == 1);
        poise_message_free(&message);
        if (poise_world_rank(world) == 1) {
            EXPECT(poise_world_send(world, 0, 0, &i, sizeof i) == 0);
        }
    }
    return 0;
}

/* Fifty rounds over a link of 1 ms take no less than a hundred of them. */
static void test_cost(void **state)
{
    (void)state;
    struct poise_local_options far = {.topology = "1x2x1:0,0,1ms,0"};
    uint64_t begun = poise_clock_ns();
    run_clean(2, &far, echo_rank, NULL);
    assert_true(poise_clock_ns() - begun >= 100 * MS);
    struct poise_local_options near = {.topology = "1x1x1:0,0,60s,60s"};
    run_clean(2, &near, echo_rank, NULL);
}

/* ---- collectives -------------------------------------------------------- */

static int check_gather(struct poise_world *world, int root, unsigned round)
{
    int rank = poise_world_rank(world);
    struct poise_buf out = {0};
    char text[64];
    memset(text, 'a' + rank, sizeof text);
    size_t mine = ((unsigned)rank * 7 + round) % sizeof text;
    EXPECT(poise_world_gather(world, root, text, mine, &out) == 0);
    struct poise_reader reader = poise_reader_of(out.data, out.len);
    for (int r = 0; rank == root && r < poise_world_size(world); r++) {
        size_t len;
        const char *data = poise_reader_blob(&reader, &len);
        EXPECT(len == ((unsigned)r * 7 + round) % sizeof text);
        EXPECT(len == 0 || data[len - 1] == 'a' + r);
    }
    EXPECT(reader.error == 0 && poise_reader_left(&reader) == 0);
    poise_buf_free(&out);
    return 0;
}

static int check_broadcast(struct poise_world *world, int root, unsigned round)
{
    struct poise_buf buf = {0};
    char text[32];
    size_t len =
        (size_t)snprintf(text, sizeof text, "from %d in %u", root, round);
    if (poise_world_rank(world) == root) {
        poise_buf_append(&buf, text, len);
    } else {
        poise_buf_append(&buf, "to be replaced", 14);
    }
    EXPECT(poise_world_broadcast(world, root, &buf) == 0);
    EXPECT(buf.len == len && memcmp(buf.data, text, len) == 0);
    poise_buf_free(&buf);
    return 0;
}

static int check_reduce(struct poise_world *world)
{
    uint64_t rank = (uint64_t)poise_world_rank(world);
    uint64_t size = (uint64_t)poise_world_size(world);
    uint64_t sums[3] = {1, rank, UINT64_C(1) << 40};
    EXPECT(poise_world_reduce(world, POISE_SUM, sums, 3) == 0);
    EXPECT(sums[0] == size && sums[1] == size * (size - 1) / 2 &&
           sums[2] == size << 40);
    uint64_t low = rank + 5, high = rank + 5;
    EXPECT(poise_world_reduce(world, POISE_MIN, &low, 1) == 0);
    EXPECT(poise_world_reduce(world, POISE_MAX, &high, 1) == 0);
    EXPECT(low == 5 && high == size + 4);
    EXPECT(poise_world_reduce(world, POISE_SUM, NULL, 0) == 0);
    return 0;
}

static int check_agree(struct poise_world *world)
{
    int rank = poise_world_rank(world), size = poise_world_size(world);
    EXPECT(poise_world_agree(world, 0) == 0);
    int code = 0;
    if (rank >= size / 2) {
        code = poise_error_set(ENOSPC, "write a thing", "the file", "rank %d",
                               rank);
    }
    EXPECT(poise_world_agree(world, code) == -ENOSPC);
    char why[32];
    snprintf(why, sizeof why, "rank %d", size / 2);
    const struct poise_error *last = poise_error_last();
    EXPECT(last->code == ENOSPC && strcmp(last->why, why) == 0);
    EXPECT(strcmp(last->doing, "write a thing") == 0);
    EXPECT(strcmp(last->what, "the file") == 0);
    return 0;
}

static int collective_rank(struct poise_world *world, void *arg)
{
    (void)arg;
    int size = poise_world_size(world), rank = poise_world_rank(world);
    struct poise_message message;
    /* A message of the user's that must survive all of it. */
    EXPECT(poise_world_send(world, (rank + 1) % size, 9, "keep", 4) == 0);
    for (unsigned round = 0; round < 6; round++) {
        int root = (int)round % size, line;
        if ((line = check_gather(world, root, round)) ||
            (line = check_broadcast(world, root, round)) ||
            (line = check_reduce(world)) || (line = check_agree(world))) {
            return line;
        }
        EXPECT(poise_world_barrier(world) == 0);
    }
    EXPECT(receive_one(world, &message) == 1);
    EXPECT(message.tag == 9 && message.source == (rank + size - 1) % size);
    poise_message_free(&message);
    EXPECT(poise_world_broadcast(world, size, NULL) == -EINVAL);
    return 0;
}

static void test_collectives(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 7, 16};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        run_clean(sizes[i], NULL, collective_rank, NULL);
        run_clean(sizes[i], &rough, collective_rank, NULL);
    }
    struct poise_local_options costly = {.topology =
                                             "2x2x2:1us,20us,50us,90us"};
    run_clean(5, &costly, collective_rank, NULL);
}

/* Everybody leaves a barrier after everybody entered it. */
static int barrier_rank(struct poise_world *world, void *arg)
{
    int *entered = arg;
    int size = poise_world_size(world);
    for (int round = 1; round <= 20; round++) {
        __atomic_fetch_add(entered, 1, __ATOMIC_RELAXED);
        EXPECT(poise_world_barrier(world) == 0);
        EXPECT(__atomic_load_n(entered, __ATOMIC_RELAXED) >= round * size);
    }
    return 0;
}

static void test_barrier(void **state)
{
    (void)state;
    int entered = 0;
    run_clean(6, &rough, barrier_rank, &entered);
}

static int mismatch_rank(struct poise_world *world, void *arg)
{
    (void)arg;
    uint64_t value = 1;
    if (poise_world_rank(world) == 0) {
        return poise_world_barrier(world);
    }
    return poise_world_reduce(world, POISE_SUM, &value, 1);
}

static int uneven_rank(struct poise_world *world, void *arg)
{
    (void)arg;
    uint64_t values[2] = {0};
    return poise_world_reduce(world, POISE_SUM, values,
                              poise_world_rank(world) == 0 ? 1 : 2);
}

static void test_out_of_step(void **state)
{
    (void)state;
    int results[2];
    assert_int_equal(run_all(2, NULL, mismatch_rank, NULL, results), 0);
    assert_int_equal(results[0], -EPROTO);
    assert_int_equal(results[1], -EPROTO);
    assert_int_equal(run_all(2, NULL, uneven_rank, NULL, results), 0);
    assert_int_equal(results[0], -EPROTO);
    assert_int_equal(results[1], -EPROTO);
}

/* ---- faults ------------------------------------------------------------- */

static int faulty_rank(struct poise_world *world, void *arg)
{
    (void)arg;
    struct poise_world *part;
    struct poise_buf out = {0};
    uint64_t value = 1;
    int code = poise_world_reduce(world, POISE_SUM, &value, 1);
    int next = poise_world_gather(world, 1, "ab", 2, &out);
    poise_buf_free(&out);
    code = code ? code : next;
    next = poise_world_split(world, POISE_LEVEL_NODE, &part);
    if (next == 0) {
        poise_world_destroy(part);
    }
    return code ? code : next;
}

/* Each allocation fails in turn: some rank says so, or waits until memory is
 * there again; nobody hangs, nothing leaks (the sanitizer's business). */
static void test_faults(void **state)
{
    (void)state;
    struct poise_local_options opts = {.topology = "1x2x1"};
    uint64_t calls, k = 0;
    int failed = 0;
    do {
        int results[3] = {0};
        poise_fault_arm(POISE_FAULT_ALLOC, ++k, ENOMEM, false);
        int code = run_all(3, &opts, faulty_rank, NULL, results);
        calls = poise_fault_calls(POISE_FAULT_ALLOC);
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        assert_true(code == 0 || code == -ENOMEM);
        for (int r = 0; code == 0 && r < 3; r++) {
            assert_true(results[r] == 0 || results[r] == -ENOMEM);
            failed += results[r] == -ENOMEM;
        }
    } while (calls >= k);
    assert_true(k > 20);
    assert_true(failed >= 10);
}

/* ---- who sits where ----------------------------------------------------- */

static void check_seats(const struct comm_layout *layout, int size,
                        const char *expected)
{
    struct poise_buf text = {0};
    for (int r = 0; r < size; r++) {
        poise_buf_printf(&text, "%s%d.%d.%d", r ? " " : "",
                         layout->seats[r].site, layout->seats[r].node,
                         layout->seats[r].numa);
    }
    assert_string_equal(poise_buf_str(&text), expected);
    poise_buf_free(&text);
}

static void test_synthetic(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int size;
        const char *seats;
    } cases[] = {
        {"1x1x1", 3, "0.0.0 0.0.0 0.0.0"},
        {"2x2x2", 7, "0.0.0 0.0.1 0.1.2 0.1.3 1.2.4 1.2.5 1.3.6"},
        {"2x2x2", 8, "0.0.0 0.0.1 0.1.2 0.1.3 1.2.4 1.2.5 1.3.6 1.3.7"},
        {"2x2x2", 3, "0.0.0 0.1.1 1.2.2"},
        {"3x1x1", 5, "0.0.0 0.0.0 1.1.1 1.1.1 2.2.2"},
        {"1x1x4", 2, "0.0.0 0.0.1"},
        {"65536x65536x65536", 2, "0.0.0 1.1.1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct comm_layout layout;
        assert_int_equal(
            comm_layout_synthetic(cases[i].text, cases[i].size, &layout), 0);
        check_seats(&layout, cases[i].size, cases[i].seats);
        free(layout.seats);
    }
}

static void test_synthetic_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "2",
                                      "2x2",
                                      "2x2x2x2",
                                      "0x1x1",
                                      "-1x1x1",
                                      "ax1x1",
                                      "1x1x1:",
                                      "1x1x1:1us",
                                      "1x1x1:0,0,0",
                                      "1x1x1:0,0,0,x",
                                      "1x1x1:0,0,0,0,0",
                                      "65537x1x1",
                                      "1x1x 1",
                                      "1:1x1",
                                      "1x1x1:0,0,0,",
                                      "1xx1x1:0,0",
                                      "x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct comm_layout layout;
        if (comm_layout_synthetic(bad[i], 4, &layout) != -EINVAL) {
            fail_msg("'%s' was taken", bad[i]);
        }
        assert_string_equal(poise_error_last()->what, bad[i]);
    }
    struct poise_world *world;
    struct poise_local_options opts = {.topology = "nonsense"};
    assert_int_equal(poise_world_create_local(1, &opts, &world), -EINVAL);
}

static void test_costs(void **state)
{
    (void)state;
    struct comm_layout layout;
    assert_int_equal(comm_layout_synthetic("1x2x3:0,1us,20us,10ms", 6, &layout),
                     0);
    assert_int_equal(layout.cost_ns[POISE_LEVEL_NUMA], 0);
    assert_int_equal(layout.cost_ns[POISE_LEVEL_NODE], 1000);
    assert_int_equal(layout.cost_ns[POISE_LEVEL_SITE], 20000);
    assert_int_equal(layout.cost_ns[POISE_LEVEL_WORLD], 10000000);
    free(layout.seats);
}

/* Places as real jobs give them: hosts dealt out in turn, a node that is only
 * partly filled, domains in any order, two sites that use the same names. */
static void test_measured(void **state)
{
    (void)state;
    static const struct {
        char site[4], node[4];
        int numa;
    } job[] = {{"", "n7", 1},  {"", "n2", 0}, {"", "n7", 0},  {"", "n2", 0},
               {"b", "n7", 1}, {"", "n7", 1}, {"b", "n9", 3}, {"", "n2", 1}};
    struct comm_place places[8];
    for (int i = 0; i < 8; i++) {
        places[i] = (struct comm_place){.site = (char *)job[i].site,
                                        .node = (char *)job[i].node,
                                        .numa = job[i].numa};
    }
    struct comm_layout layout;
    assert_int_equal(comm_layout_measured(places, 8, &layout), 0);
    check_seats(&layout, 8, "0.0.0 0.1.1 0.0.2 0.1.1 1.2.3 0.0.0 1.3.4 0.1.5");
    struct poise_buf packed = {0};
    struct comm_layout copy;
    assert_int_equal(comm_layout_pack(&layout, 8, &packed), 0);
    struct poise_reader reader = poise_reader_of(packed.data, packed.len - 1);
    assert_int_equal(comm_layout_unpack(&reader, 8, &copy), -EBADMSG);
    reader = poise_reader_of(packed.data, packed.len);
    assert_int_equal(comm_layout_unpack(&reader, 8, &copy), 0);
    check_seats(&copy, 8, "0.0.0 0.1.1 0.0.2 0.1.1 1.2.3 0.0.0 1.3.4 0.1.5");
    free(copy.seats);
    poise_buf_free(&packed);

    struct comm_seats seats;
    assert_int_equal(comm_seats_create(&layout, 5, 8, &seats), 0);
    static const int peers[] = {0, 2, 7, 1, 3, 6, 4};
    static const int first[] = {0, 1, 2, 5, 7};
    assert_memory_equal(seats.peers, peers, sizeof peers);
    assert_memory_equal(seats.first, first, sizeof first);
    static const int node[] = {0, 2, 5};
    assert_int_equal(seats.group_sizes[POISE_LEVEL_NODE], 3);
    assert_memory_equal(seats.groups[POISE_LEVEL_NODE], node, sizeof node);
    assert_false(seats.timed);
    comm_seats_free(&seats);
}

/* On any layout: peers are everybody else once, nearest first, and over all
 * ranks nobody is first in a level's list more often than others. */
static void test_peers(void **state)
{
    (void)state;
    struct poise_world *worlds[12];
    struct poise_local_options opts = {.topology = "2x3x2"};
    int asked_first[12] = {0};
    assert_int_equal(poise_world_create_local(12, &opts, worlds), 0);
    for (int r = 0; r < 12; r++) {
        struct poise_peers peers = poise_world_peers(worlds[r]);
        bool seen[12] = {false};
        assert_int_equal(peers.first[POISE_LEVELS], 11);
        for (int level = 0; level < POISE_LEVELS; level++) {
            for (int i = peers.first[level]; i < peers.first[level + 1]; i++) {
                int peer = peers.ranks[i];
                assert_int_equal(poise_world_distance(worlds[r], r, peer),
                                 level);
                assert_false(seen[peer] || peer == r);
                seen[peer] = true;
            }
        }
        asked_first[peers.ranks[peers.first[POISE_LEVEL_NODE]]]++;
        assert_int_equal(poise_world_is_root(worlds[r], POISE_LEVEL_SITE),
                         r % 6 == 0);
    }
    for (int r = 0; r < 12; r++) {
        assert_int_equal(asked_first[r], 1);
        poise_world_destroy(worlds[r]);
    }
}

static int split_rank(struct poise_world *world, void *arg)
{
    (void)arg;
    int rank = poise_world_rank(world);
    for (int level = 0; level < POISE_LEVELS; level++) {
        struct poise_world *part, *again;
        const int *ranks;
        int count = poise_world_group(world, level, &ranks);
        EXPECT(poise_world_split(world, level, &part) == 0);
        EXPECT(poise_world_size(part) == count);
        EXPECT(ranks[poise_world_rank(part)] == rank);
        EXPECT(poise_world_seat(part, 0).site == 0);
        uint64_t sum = (uint64_t)rank, expected = 0;
        for (int i = 0; i < count; i++) {
            expected += (uint64_t)ranks[i];
        }
        EXPECT(poise_world_reduce(part, POISE_SUM, &sum, 1) == 0);
        EXPECT(sum == expected);
        /* Distances are those of the whole. */
        EXPECT(poise_world_distance(part, 0, count - 1) ==
               poise_world_distance(world, ranks[0], ranks[count - 1]));
        EXPECT(poise_world_split(part, POISE_LEVEL_NUMA, &again) == 0);
        EXPECT(poise_world_barrier(again) == 0);
        poise_world_destroy(again);
        poise_world_destroy(part);
    }
    return 0;
}

static void test_split(void **state)
{
    (void)state;
    struct poise_local_options opts = rough;
    opts.topology = "2x2x2";
    run_clean(7, &opts, split_rank, NULL);
    opts.topology = NULL;
    run_clean(3, &opts, split_rank, NULL);
}

static void test_sites(void **state)
{
    (void)state;
    static const char lines[] = "# hosts and their sites\n"
                                "login  north # the front end\n"
                                "\n"
                                "n[0-4]*\tsouth\r\n"
                                "lonely\n"
                                "*.far.org east\n";
    static const char *const cases[][2] = {
        {"login", "north"}, {"login.here.org", "north"},
        {"n17", "south"},   {"n7", NULL},
        {"lonely", NULL},   {"x.far.org", "east"},
        {"far.org", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[sizeof lines];
        memcpy(text, lines, sizeof lines);
        const char *site = comm_site_of(text, cases[i][0]);
        assert_true((site == NULL) == (cases[i][1] == NULL));
        if (site) {
            assert_string_equal(site, cases[i][1]);
        }
    }
}

static void test_place(void **state)
{
    (void)state;
    struct comm_place place;
    char path[TEMPORARY_BYTES];
    assert_int_equal(comm_place_find(NULL, &place), 0);
    assert_string_equal(place.site, "");
    assert_true(strlen(place.node) > 0);
    assert_true(place.numa >= 0);
    comm_place_free(&place);

    int fd = mkstemp(temporary_name(path, "comm"));
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "* here\n", 7), 7);
    assert_int_equal(comm_place_find(path, &place), 0);
    assert_string_equal(place.site, "here");
    comm_place_free(&place);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(comm_place_find(path, &place), -EINVAL);
    assert_string_equal(poise_error_last()->what, path);
    close(fd);
    unlink(path);
    assert_int_equal(comm_place_find(path, &place), -ENOENT);
}

/* A machine of as many domains as this one has processors, by hwloc's own
 * means: where the thread is bound to decides, or where it runs. */
/* A process with process ids of its own shares no memory with this one, so it
 * sits on another node. Where namespaces are closed there is nothing to see. */
static void test_containers_are_nodes(void **state)
{
    (void)state;
    struct comm_place here;
    assert_int_equal(comm_place_find(NULL, &here), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (unshare(CLONE_NEWPID) < 0 &&
            unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0) {
            _exit(0);
        }
        struct comm_place there;
        int status = 1;
        pid_t inner = fork();
        if (inner == 0) {
            _exit(comm_place_find(NULL, &there) < 0 ||
                  strcmp(here.node, there.node) == 0);
        }
        _exit(inner < 0 || waitpid(inner, &status, 0) != inner || status != 0);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    comm_place_free(&here);
}

static void test_numa(void **state)
{
    (void)state;
    cpu_set_t all, one;
    int (*here)(void) = NULL;
    struct poise_buf why = {0};
    void *module = comm_module_open("poise-numa.so", &why);
    if (!module) {
        fail_msg("%s", poise_buf_str(&why));
    }
    *(void **)&here = dlsym(module, "poise_numa_here");
    assert_non_null(here);
    assert_int_equal(setenv("HWLOC_SYNTHETIC", "numa:64 pu:1", 1), 0);
    assert_int_equal(setenv("HWLOC_THISSYSTEM", "1", 1), 0);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int cpu = 0; cpu < 64; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
            assert_int_equal(here(), cpu);
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    int anywhere = here();
    assert_true(anywhere >= 0 || !CPU_ISSET(0, &all));
    unsetenv("HWLOC_SYNTHETIC");
    unsetenv("HWLOC_THISSYSTEM");
    assert_true(here() >= 0);
    poise_buf_free(&why);
}

/* ---- launchers ---------------------------------------------------------- */

/* The environment of the case under test: "NAME=VALUE" up to NULL. */
static const char *const *test_environment;

static const char *look_up(const char *name)
{
    size_t len = strlen(name);
    for (int i = 0; test_environment[i]; i++) {
        if (strncmp(test_environment[i], name, len) == 0 &&
            test_environment[i][len] == '=') {
            return test_environment[i] + len + 1;
        }
    }
    return NULL;
}

static void test_launchers(void **state)
{
    (void)state;
    static const struct {
        const char *env[9];
        int result;
        const char *flavour;
        int size;
    } cases[] = {
        {{"HOME=/root"}, 0, NULL, 0},
        {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "PMIX_RANK=1"},
         0,
         "ompi",
         4},
        {{"PMI_RANK=0", "PMI_SIZE=2", "PMI_FD=5"}, 0, "mpich", 2},
        /* srun with PMIx, with PMI-2 (which sets just these four), with
         * neither. */
        {{"SLURM_PROCID=3", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=8",
          "PMIX_RANK=3", "PMIX_NAMESPACE=slurm.pmix.5.0",
          "PMIX_SERVER_URI21=pmix-server.1;tcp4://127.0.0.1:4"},
         0,
         "ompi",
         8},
        {{"SLURM_PROCID=3", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=8",
          "PMI_FD=9", "PMI_JOBID=5.0", "PMI_RANK=3", "PMI_SIZE=8"},
         0,
         "mpich",
         8},
        /* mpirun and Hydra in a batch job: their daemons are a step of srun,
         * one task a node, whose variables their children inherit. */
        {{"SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2",
          "PMIX_RANK=5", "OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8"},
         0,
         "ompi",
         8},
        {{"SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2",
          "PMIX_RANK=1", "PMI_RANK=5", "PMI_SIZE=8", "PMI_FD=7"},
         0,
         "mpich",
         8},
        /* The shell of salloc, where it is a step of its own. */
        {{"SLURM_PROCID=0", "SLURM_STEP_ID=4294967290", "SLURM_NTASKS=8",
          "SLURM_STEP_NUM_TASKS=1"},
         0,
         NULL,
         0},
        {{"SLURM_PROCID=3", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=8"},
         -ENOTSUP,
         NULL,
         0},
        {{"SLURM_PROCID=3", "SLURM_STEP_ID=0", "SLURM_NTASKS=8"},
         -ENOTSUP,
         NULL,
         0},
        /* One task, and a batch script that has not called srun. */
        {{"SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=1",
          "SLURM_NTASKS=8"},
         0,
         NULL,
         0},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=5"}, 0, NULL, 0},
        {{"POISE_MPI=none", "PMI_RANK=0", "PMI_SIZE=2"}, 0, NULL, 0},
        {{"POISE_MPI=mpich", "OMPI_COMM_WORLD_RANK=0",
          "OMPI_COMM_WORLD_SIZE=2"},
         0,
         "mpich",
         2},
        {{"POISE_MPI=ompi"}, 0, "ompi", 0},
        {{"POISE_MPI=lam"}, -EINVAL, NULL, 0},
        {{"POISE_MPI="}, 0, NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct comm_launch launch;
        test_environment = cases[i].env;
        int result = comm_launcher_find(look_up, &launch);
        if (result != cases[i].result) {
            fail_msg("case %zu: %d", i, result);
        }
        if (result == 0 && cases[i].flavour) {
            assert_string_equal(launch.flavour, cases[i].flavour);
            assert_int_equal(launch.size, cases[i].size);
        } else if (result == 0) {
            assert_null(launch.flavour);
        }
    }
    assert_int_equal(poise_error_last()->code, EINVAL);
}

/* ---- finding a launcher ------------------------------------------------- */

/* An empty program, or a link to one, in a folder. */
static void plant(const char *folder, const char *name, const char *target)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (target) {
        assert_int_equal(symlink(target, path), 0);
        return;
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fchmod(fileno(file), 0700), 0);
    assert_int_equal(fclose(file), 0);
}

static void check_found(const char *mpi, const char *command, const char *whose)
{
    struct poise_comm_launcher found = {0};
    assert_int_equal(poise_comm_launcher_find(mpi, &found), 0);
    assert_string_equal(found.command, command);
    assert_string_equal(found.mpi, whose);
    poise_comm_launcher_free(&found);
}

static void test_launcher_find(void **state)
{
    (void)state;
    char a[TEMPORARY_BYTES], command[TEMPORARY_MORE], path[600];
    struct poise_comm_launcher found = {0};
    char *before = strdup(getenv("PATH"));
    assert_non_null(mkdtemp(temporary_name(a, "comm")));
    snprintf(path, sizeof path, "/nowhere:%s", a);
    setenv("PATH", path, 1);
    assert_int_equal(poise_comm_launcher_find(NULL, &found), -ENOTSUP);
    plant(a, "mpirun.mpich", NULL);
    snprintf(command, sizeof command, "%s/mpirun.mpich", a);
    check_found(NULL, command, "mpich");
    check_found("mpich", command, "mpich");
    assert_int_equal(poise_comm_launcher_find("ompi", &found), -ENOTSUP);
    assert_int_equal(poise_comm_launcher_find("lam", &found), -EINVAL);
    /* The plain name comes first, if it can be told whose it is. */
    plant(a, "mpirun", NULL);
    check_found("", command, "mpich");
    snprintf(path, sizeof path, "%s/mpirun", a);
    unlink(path);
    plant(a, "orterun", NULL);
    plant(a, "mpirun", "orterun");
    check_found("ompi", path, "ompi");
    check_found(NULL, path, "ompi");
    check_found("mpich", command, "mpich");
    static const char *const names[] = {"mpirun", "orterun", "mpirun.mpich"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", a, names[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(a), 0);
    setenv("PATH", before, 1);
    free(before);
}

/* A launcher whose MPI has no back end: an error, not a world of one. */
static void test_no_backend(void **state)
{
    (void)state;
    struct poise_world *world;
    const struct comm_backend *backend;
    assert_int_equal(comm_backend_load("other", &backend), -ENOTSUP);
    assert_non_null(
        strstr(poise_error_last()->why, "no usable poise-mpi-other.so"));
    assert_int_equal(poise_world_adopt("other", &world, sizeof world, &world),
                     -ENOTSUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_send_refuses),
        cmocka_unit_test(test_stress),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_out_of_step),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_synthetic_refuses),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_measured),
        cmocka_unit_test(test_peers),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_sites),
        cmocka_unit_test(test_place),
        cmocka_unit_test(test_containers_are_nodes),
        cmocka_unit_test(test_numa),
        cmocka_unit_test(test_launchers),
        cmocka_unit_test(test_launcher_find),
        cmocka_unit_test(test_no_backend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
