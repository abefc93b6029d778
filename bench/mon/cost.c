/*
 * What reading a record takes, in ns of processor time, as CSV: the least and
 * the median of rounds. In place, merged by time, with nothing done to it; and
 * to the figures of both monitors. In each round the rings of all ranks are
 * filled with calls (and the hops of a tree), of which only the reading is
 * measured. Lost records are counted.
 *
 * usage: mon_cost FOLDER [RANKS [ROUNDS]]
 */
#include <poise/monitor.h>
#include <poise/trace.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 6000, CAPACITY = 16384, MOST_RANKS = 256, MOST_ROUNDS = 1000 };

struct rank {
    struct poise_trace *trace;
    struct poise_trace_ring *ring;
    uint32_t call, hop;
    char path[PATH_MAX];
};

static struct rank ranks[MOST_RANKS];
static struct poise_rng rng;
static uint64_t calls, now;

static int fail(const char *what)
{
    fprintf(stderr, "mon_cost: %s: %s\n", what, poise_error_last()->why);
    return 1;
}

static int make(const char *folder, int rank, int size)
{
    struct rank *made = &ranks[rank];
    struct poise_trace_options options = {
        .session = {19, 1}, .rank = rank, .size = size, .capacity = CAPACITY};
    struct poise_trace_place place = {.type = POISE_TRACE_CALL,
                                      .rank = rank,
                                      .peer = -1,
                                      .group = 1,
                                      .size = (uint32_t)size,
                                      .name = "MPI_Allreduce",
                                      .group_name = "MPI_COMM_WORLD"};
    snprintf(made->path, sizeof made->path, rank ? "%s/t.%d" : "%s/t", folder,
             rank);
    if (poise_trace_create(made->path, &options, &made->trace) < 0) {
        return fail("create");
    }
    made->ring = poise_trace_claim(made->trace, "rank");
    made->call = poise_trace_collector(made->trace, &place);
    place.type = POISE_TRACE_HOP;
    place.peer = (rank - 1) / 2 - (rank == 0);
    made->hop = poise_trace_collector(made->trace, &place);
    return made->ring ? 0 : fail("claim");
}

/* Calls of all ranks: each comes when it likes, all leave after the last. */
static uint64_t fill(int size, bool hops)
{
    for (int i = 0; i < CALLS; i++) {
        uint64_t came = 0, enter[MOST_RANKS];
        for (int r = 0; r < size; r++) {
            enter[r] = now + poise_rng_below(&rng, 2000);
            came = enter[r] > came ? enter[r] : came;
        }
        calls++;
        for (int r = 0; r < size; r++) {
            uint64_t left = came + 400 + poise_rng_below(&rng, 600);
            if (hops) {
                poise_trace_put(ranks[r].ring, ranks[r].hop, calls,
                                enter[r] + 10, came + 100, came + 200,
                                left - 10);
            }
            poise_trace_put(ranks[r].ring, ranks[r].call, calls, enter[r], left,
                            8, 0);
        }
        now = came + 2000;
    }
    return (uint64_t)CALLS * (uint64_t)size * (hops ? 2 : 1);
}

static uint64_t cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static int compare(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static double ns[MOST_ROUNDS];

static void show(int size, const char *what, int rounds, uint64_t records,
                 uint64_t lost, uint64_t missing)
{
    qsort(ns, (size_t)rounds, sizeof *ns, compare);
    printf("%d,%s,%.1f,%.1f,%llu,%llu,%llu\n", size, what, ns[0],
           ns[rounds / 2], (unsigned long long)records,
           (unsigned long long)lost, (unsigned long long)missing);
}

/* What a user's own monitor begins with. */
static size_t look(const struct poise_scope_from *from,
                   struct poise_trace_event *tuples, size_t count, void *arg)
{
    uint64_t *sum = arg;
    (void)from;
    for (size_t i = 0; i < count; i++) {
        *sum += tuples[i].values[0];
    }
    return count;
}

static int measure_reader(int size, int rounds)
{
    struct poise_scope *scope = NULL;
    struct poise_scope_source source;
    uint64_t sum = 0;
    int code = 0;
    if (poise_scope_create(ranks[0].path, NULL, &scope) < 0 ||
        poise_scope_stage(scope, look, &sum) < 0) {
        return fail("scope");
    }
    while (poise_scope_poll(scope, false) > 0) {
    }
    poise_scope_source(scope, &source);
    uint64_t lost = source.lost;
    for (int i = 0; i < rounds && code >= 0; i++) {
        uint64_t records = fill(size, false), from = cpu_ns();
        while ((code = poise_scope_poll(scope, false)) > 0) {
        }
        ns[i] = (double)(cpu_ns() - from) / (double)records;
    }
    if (code < 0) {
        return fail("read");
    }
    poise_scope_source(scope, &source);
    show(size, "in place", rounds, source.records, source.lost - lost, 0);
    poise_scope_destroy(scope);
    return 0;
}

static int measure(int size, int rounds, bool hops)
{
    struct poise_monitor *monitor = NULL;
    struct poise_monitor_reader *reader = NULL;
    struct poise_monitor_source source;
    uint64_t first = calls;
    int code = 0;
    if (poise_monitor_create(NULL, &monitor) < 0 ||
        poise_monitor_reader_create(monitor, ranks[0].path, &reader) < 0) {
        return fail("monitor");
    }
    while (poise_monitor_reader_poll(reader, false) > 0) {
    }
    poise_monitor_reader_source(reader, &source);
    const struct poise_monitor_operation *seen =
        poise_monitor_operation(monitor, 0);
    uint64_t lost = source.lost, before = seen ? seen->calls : 0;
    for (int i = 0; i < rounds && code >= 0; i++) {
        uint64_t records = fill(size, hops), from = cpu_ns();
        while ((code = poise_monitor_reader_poll(reader, false)) > 0) {
        }
        ns[i] = (double)(cpu_ns() - from) / (double)records;
    }
    if (code < 0) {
        return fail("read");
    }
    poise_monitor_reader_source(reader, &source);
    seen = poise_monitor_operation(monitor, 0);
    show(size, hops ? "monitors: call and hop" : "monitors: call", rounds,
         source.records, source.lost - lost,
         calls - first - (seen->calls - before));
    poise_monitor_reader_destroy(reader);
    poise_monitor_destroy(monitor);
    return 0;
}

int main(int argc, char **argv)
{
    int size = argc > 2 ? atoi(argv[2]) : 4;
    int rounds = argc > 3 ? atoi(argv[3]) : 41, code = 0;
    if (argc < 2 || size < 1 || size > MOST_RANKS || rounds < 1 ||
        rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: mon_cost FOLDER [RANKS [ROUNDS]]\n");
        return 2;
    }
    poise_rng_seed(&rng, 19);
    for (int r = 0; r < size && code == 0; r++) {
        code = make(argv[1], r, size);
    }
    now = poise_clock_ticks();
    puts("ranks,records,least ns,median ns,read,lost,calls missing");
    code = code == 0 ? measure_reader(size, rounds) : code;
    for (int hops = 0; hops < 2 && code == 0; hops++) {
        code = measure(size, rounds, hops);
    }
    for (int r = 0; r < size; r++) {
        poise_trace_destroy(ranks[r].trace);
        unlink(ranks[r].path);
    }
    return code;
}
