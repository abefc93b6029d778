/*
 * Room comm without MPI: worlds of threads, messages, collectives under delay
 * and reordering, faults, who sits where, and what launchers leave in the
 * environment.
 */
#include "../temporary.h"
#include "comm/internal.h"
#include "trace/internal.h"

#include "../ranks.h"

#include <poise/world_clock.h>

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

/* ---- clocks between beginning and end ------------------------------------ */

static int compare_rank(struct poise_world *world, void *arg)
{
    uint64_t next = 0;
    EXPECT(poise_world_trace_compare(world, 5, &next) == 0);
    EXPECT(next == UINT64_MAX); /* there is no session */
    EXPECT(poise_world_trace_begin(world, arg) == 0);
    EXPECT(world->trace && world->trace->head->offsets == 1);
    EXPECT(poise_world_trace_compare(world, 5, &next) == 0);
    EXPECT(next == UINT64_MAX); /* there is one clock */
    world->one_clock = false;
    EXPECT(poise_world_trace_compare(world, 5, &next) == 0);
    EXPECT(next >= 1 && next <= 512);
    EXPECT(world->trace->head->offsets == 1); /* it was not time */
    if (world->rank == 0) {
        world->compared_ns -= 6000 * MS;
        world->began_ns -= 6000 * MS;
    }
    EXPECT(poise_world_trace_compare(world, 5, &next) == 0);
    EXPECT(world->trace->head->offsets == 2); /* it was */
    world->one_clock = false;
    if (world->rank == 0) {
        world->compared_ns -= 6000 * MS;
        world->began_ns -= 160000 * MS; /* a sixteenth is more */
    }
    EXPECT(poise_world_trace_compare(world, 5, &next) == 0);
    EXPECT(world->trace->head->offsets == 2);
    EXPECT(poise_world_trace_end(world) == 0);
    return 0;
}

/* Rank 0 says when clocks are compared again, and all do it. */
static void test_compare(void **state)
{
    (void)state;
    char path[TEMPORARY_BYTES], other[TEMPORARY_BYTES + 8];
    int fd = mkstemp(temporary_name(path, "compare"));
    assert_true(fd >= 0 && close(fd) == 0 && unlink(path) == 0);
    snprintf(other, sizeof other, "%s.1", path);
    run_clean(2, NULL, compare_rank, path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(other), 0);
    /* 100 calls in a second, and 2 to go; none was fast enough to tell; as
     * slow as can be; so fast that they may become slower. */
    assert_int_equal(comm_session_next(1000 * MS, 100, 2000 * MS), 200);
    assert_int_equal(comm_session_next(0, 1, 5000 * MS), 512);
    assert_int_equal(comm_session_next(60000 * MS, 1, 5000 * MS), 1);
    assert_int_equal(comm_session_next(1, UINT64_MAX, UINT64_MAX), 512);
}

static int id_rank(struct poise_world *world, void *arg)
{
    uint64_t *ids = arg;
    struct poise_world *part, *all;
    ids[3 * world->rank] = poise_world_id(world);
    EXPECT(poise_world_split(world, POISE_LEVEL_NODE, &part) == 0);
    EXPECT(poise_world_split(world, POISE_LEVEL_WORLD, &all) == 0);
    ids[3 * world->rank + 1] = poise_world_id(part);
    ids[3 * world->rank + 2] = poise_world_id(all);
    poise_world_destroy(all);
    poise_world_destroy(part);
    return 0;
}

/* Alike on the ranks of a world, and on those of no other. */
static void test_id(void **state)
{
    (void)state;
    struct poise_local_options opts = {.topology = "1x2x1"};
    uint64_t ids[12], again[12];
    run_clean(4, &opts, id_rank, ids);
    run_clean(4, &opts, id_rank, again);
    for (int i = 3; i < 12; i++) {
        bool same = i % 3 != 1 || i / 6 == 0;
        assert_true((ids[i] == ids[i % 3]) == same);
    }
    assert_int_equal(ids[7], ids[10]); /* ranks 2 and 3 */
    assert_true(ids[0] != ids[1] && ids[0] != ids[2] && ids[1] != ids[2]);
    for (int i = 0; i < 12; i++) {
        assert_true(ids[i] != 0 && ids[i] != again[i]);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),   cmocka_unit_test(test_send_refuses),
        cmocka_unit_test(test_stress),  cmocka_unit_test(test_order),
        cmocka_unit_test(test_drop),    cmocka_unit_test(test_wait),
        cmocka_unit_test(test_cost),    cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_barrier), cmocka_unit_test(test_out_of_step),
        cmocka_unit_test(test_compare), cmocka_unit_test(test_id),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
