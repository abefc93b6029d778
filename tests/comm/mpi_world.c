/*
 * Room comm over a real MPI: started by tests/comm/mpi_run at several sizes
 * under each launcher. usage: world CASE
 *
 *   all      messages, collectives, waiting, sub-worlds; says "ok N NAME"
 *   create   make a world and print its size, or the error
 *   idle     CPU time of rank 1 while it waits for two seconds
 *   poll     nanoseconds of a poll that finds nothing
 *   long     one message of more than 2 GiB
 */
#include <poise/comm.h>
#include <poise/core.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

static int failures;

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__,        \
                    poise_world_rank(world), #condition);                      \
            failures++;                                                        \
        }                                                                      \
    } while (0)

static void print_error(void)
{
    struct poise_buf text = {0};
    poise_error_format(poise_error_last(), &text);
    printf("%s\n", poise_buf_str(&text));
    poise_buf_free(&text);
}

static struct poise_message receive_one(struct poise_world *world)
{
    struct poise_message message = {0};
    int got;
    while ((got = poise_world_receive(world, &message)) == 0) {
        poise_world_wait(world, UINT64_MAX);
    }
    CHECK(got == 1);
    return message;
}

/* ---- cases -------------------------------------------------------------- */

#define ROUNDS 24

/* Sizes around the limits at which MPIs change their protocol. */
static size_t len_of(int from, int to, int round)
{
    static const size_t lens[] = {0,     1,     100,     4000,    4096,
                                  16384, 65000, 1 << 17, 1 << 20, 4 << 20};
    size_t many = sizeof lens / sizeof *lens;
    return lens[(size_t)(from * 3 + to * 5 + round) % many];
}

static void check_message(struct poise_world *world,
                          struct poise_message *message)
{
    size_t len = len_of(message->source, poise_world_rank(world), message->tag);
    const unsigned char *data = message->data;
    unsigned char value = (unsigned char)(message->source * 31 + message->tag);
    CHECK(message->len == len);
    for (size_t i = 0; i < message->len; i += 997) {
        if (data[i] != value) {
            CHECK(!"contents");
            return;
        }
    }
}

/* Everybody to everybody, all sent before anything is received: nothing may
 * block. */
static void all_to_all(struct poise_world *world)
{
    int size = poise_world_size(world), rank = poise_world_rank(world);
    char *data = malloc(4 << 20);
    CHECK(data);
    for (int round = 0; round < ROUNDS; round++) {
        memset(data, rank * 31 + round, 4 << 20);
        for (int to = 0; to < size; to++) {
            CHECK(poise_world_send(world, to, round, data,
                                   len_of(rank, to, round)) == 0);
        }
    }
    free(data);
    int *next = calloc((size_t)size, sizeof *next);
    CHECK(next);
    for (int left = ROUNDS * size; left > 0; left--) {
        struct poise_message message = receive_one(world);
        /* In order between two ranks. */
        CHECK(message.tag == next[message.source]++);
        check_message(world, &message);
        poise_message_free(&message);
    }
    free(next);
}

static void collectives(struct poise_world *world)
{
    int size = poise_world_size(world), rank = poise_world_rank(world);
    struct poise_buf buf = {0};
    for (int root = 0; root < size; root++) {
        poise_buf_reset(&buf);
        CHECK(poise_world_gather(world, root, &rank, sizeof rank, &buf) == 0);
        struct poise_reader reader = poise_reader_of(buf.data, buf.len);
        for (int r = 0; rank == root && r < size; r++) {
            size_t len;
            const void *value = poise_reader_blob(&reader, &len);
            CHECK(len == sizeof r && memcmp(value, &r, sizeof r) == 0);
        }
        CHECK(poise_world_broadcast(world, root, &buf) == 0);
        CHECK(buf.len == (size_t)size * (sizeof rank + 1));
    }
    poise_buf_free(&buf);
    uint64_t sum = (uint64_t)rank + 1;
    CHECK(poise_world_reduce(world, POISE_SUM, &sum, 1) == 0);
    CHECK(sum == (uint64_t)size * ((uint64_t)size + 1) / 2);
    int code =
        rank == size - 1 ? poise_error_set(ENOSPC, "test", "x", NULL) : 0;
    CHECK(poise_world_agree(world, code) == -ENOSPC);
    CHECK(strcmp(poise_error_last()->what, "x") == 0);
    CHECK(poise_world_barrier(world) == 0);
}

static void *wake_soon(void *arg)
{
    poise_sleep_ns(50 * MS);
    poise_world_wake(arg);
    return NULL;
}

static void waiting(struct poise_world *world)
{
    uint64_t begun = poise_clock_ns();
    poise_world_wait(world, 5 * MS);
    CHECK(poise_clock_ns() - begun >= 5 * MS);
    poise_world_wake(world);
    poise_world_wait(world, UINT64_MAX);
    pthread_t thread;
    CHECK(poise_world_threads_allowed(world));
    CHECK(pthread_create(&thread, NULL, wake_soon, world) == 0);
    poise_world_wait(world, UINT64_MAX);
    pthread_join(thread, NULL);
    CHECK(poise_world_barrier(world) == 0);
}

static void parts(struct poise_world *world)
{
    for (int level = 0; level < POISE_LEVELS; level++) {
        struct poise_world *part;
        const int *ranks;
        int count = poise_world_group(world, level, &ranks);
        CHECK(poise_world_split(world, level, &part) == 0);
        CHECK(poise_world_size(part) == count);
        CHECK(ranks[poise_world_rank(part)] == poise_world_rank(world));
        uint64_t sum = 1;
        CHECK(poise_world_reduce(part, POISE_SUM, &sum, 1) == 0);
        CHECK(sum == (uint64_t)count);
        /* A message that nobody receives must not hold up the end. */
        CHECK(poise_world_send(part, 0, 1, "left behind", 11) == 0);
        poise_world_destroy(part);
    }
}

/* Each allocation of the last rank fails in turn. Nobody hangs, and the world
 * goes on working. */
static void faults(struct poise_world *world)
{
    bool faulty = poise_world_rank(world) == poise_world_size(world) - 1;
    uint64_t failed = 0;
    for (uint64_t k = 1; k <= 30; k++) {
        struct poise_world *part;
        struct poise_buf buf = {0};
        uint64_t value = 1;
        poise_fault_arm(POISE_FAULT_ALLOC, faulty ? k : 0, ENOMEM, false);
        int code = poise_world_reduce(world, POISE_SUM, &value, 1);
        CHECK(code == 0 || code == -ENOMEM);
        failed += code != 0;
        code = poise_world_gather(world, 0, &value, sizeof value, &buf);
        CHECK(code == 0 || code == -ENOMEM);
        failed += code != 0;
        poise_buf_free(&buf);
        code = poise_world_split(world, POISE_LEVEL_WORLD, &part);
        CHECK(code == 0 || code == -ENOMEM);
        if (code == 0) {
            poise_world_destroy(part);
        }
        failed += code != 0;
    }
    poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
    CHECK(poise_world_reduce(world, POISE_MAX, &failed, 1) == 0);
    CHECK(failed > 3);
}

static void run_idle(struct poise_world *world)
{
    CHECK(poise_world_barrier(world) == 0);
    uint64_t cpu = poise_clock_cpu_ns(), end = poise_clock_ns() + 2000 * MS;
    for (uint64_t now; (now = poise_clock_ns()) < end;) {
        poise_world_wait(world, end - now);
    }
    cpu = poise_clock_cpu_ns() - cpu;
    CHECK(poise_world_reduce(world, POISE_MAX, &cpu, 1) == 0);
    if (poise_world_rank(world) == 0) {
        printf("idle %.2f ms of CPU in 2 s\n", (double)cpu / 1e6);
    }
}

static void run_poll(struct poise_world *world)
{
    struct poise_message message;
    const int calls = 200000;
    CHECK(poise_world_barrier(world) == 0);
    uint64_t begun = poise_clock_ns();
    for (int i = 0; poise_world_rank(world) == 0 && i < calls; i++) {
        CHECK(poise_world_receive(world, &message) == 0);
    }
    if (poise_world_rank(world) == 0) {
        printf("poll %.1f ns\n",
               (double)(poise_clock_ns() - begun) / (double)calls);
        printf("start-up %.1f ms\n",
               (double)poise_world_startup_ns(world) / 1e6);
    }
}

static void run_long(struct poise_world *world)
{
    size_t len = ((size_t)2 << 30) + 12345;
    if (poise_world_rank(world) == 0) {
        char *data = calloc(len, 1);
        CHECK(data);
        data[len - 1] = 'z';
        CHECK(poise_world_send(world, 1, 0, data, len) == 0);
        free(data);
    } else if (poise_world_rank(world) == 1) {
        struct poise_message message = receive_one(world);
        CHECK(message.len == len);
        CHECK(((char *)message.data)[len - 1] == 'z');
        poise_message_free(&message);
    }
}

static void run_all(struct poise_world *world)
{
    all_to_all(world);
    collectives(world);
    waiting(world);
    parts(world);
    faults(world);
}

static void run_create(struct poise_world *world)
{
    struct poise_placement seat =
        poise_world_placement(world, poise_world_size(world) - 1);
    if (poise_world_rank(world) == 0) {
        printf("last seat %d.%d.%d\n", seat.site, seat.node, seat.numa);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct poise_world *world);
    } cases[] = {{"all", run_all},
                 {"create", run_create},
                 {"idle", run_idle},
                 {"poll", run_poll},
                 {"long", run_long}};
    struct poise_world *world;
    if (argc != 2) {
        return 2;
    }
    int code = poise_world_create(NULL, &world);
    if (code < 0) {
        print_error();
        return code == -ENOTSUP ? 3 : 1;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run(world);
        }
    }
    uint64_t all = (uint64_t)failures;
    CHECK(poise_world_reduce(world, POISE_SUM, &all, 1) == 0);
    if (poise_world_rank(world) == 0 && all == 0) {
        printf("ok %d %s\n", poise_world_size(world), poise_world_name(world));
    }
    poise_world_destroy(world);
    return all ? 1 : 0;
}
