/*
 * What recording costs, in nanoseconds, as CSV: the least and the median of
 * batches, which take turns. Off (a load and a branch), on into a ring that has
 * room and into one that is full and goes round, with a ring in the hand, with
 * a time that the caller has, a span of two readings of the clock, a small ring
 * that stays in the cache, in a signal handler, several threads at a time, and
 * reading in place.
 *
 * usage: trace_cost [BATCHES [RECORDS [THREADS]]]
 */
#include <poise/trace.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_BATCHES 201
#define MOST_THREADS 64

struct bench {
    uint64_t records;
    unsigned threads;
    struct poise_trace *large, *small;
    struct poise_trace_view *view;
    struct poise_trace_ring *hand;
    uint64_t own_ns; /* what a case measured by itself; 0: it did not */
};

static uint64_t sink;

/* The loop alone. */
static void nothing(struct bench *bench)
{
    for (uint64_t i = 0; i < bench->records; i++) {
        __asm__ volatile("" ::"r"(i));
    }
}

static void clock_alone(struct bench *bench)
{
    for (uint64_t i = 0; i < bench->records; i++) {
        sink += poise_clock_ticks();
    }
}

static void events(struct bench *bench)
{
    for (uint64_t i = 0; i < bench->records; i++) {
        poise_trace_event(POISE_TRACE_TOKEN, i, 1, 2, 3);
    }
}

static void off(struct bench *bench)
{
    struct poise_trace *was = poise_trace_use(NULL);
    events(bench);
    poise_trace_use(was);
}

static void on(struct bench *bench)
{
    poise_trace_use(bench->large);
    events(bench);
}

static void small(struct bench *bench)
{
    poise_trace_use(bench->small);
    events(bench);
    poise_trace_use(bench->large);
}

/* A ring of which no record was ever used: one for each batch. */
static void room(struct bench *bench)
{
    struct poise_trace_options options = {.capacity =
                                              (unsigned)bench->records * 2};
    struct poise_trace *fresh = NULL;
    uint64_t from;
    if (poise_trace_create(NULL, &options, &fresh)) {
        abort();
    }
    poise_trace_use(fresh);
    poise_trace_ring();
    from = poise_clock_ns();
    events(bench);
    bench->own_ns = poise_clock_ns() - from;
    poise_trace_use(bench->large);
    poise_trace_destroy(fresh);
}

static void timed(struct bench *bench)
{
    uint64_t now = poise_clock_ticks();
    for (uint64_t i = 0; i < bench->records; i++) {
        poise_trace_put(poise_trace_ring(), POISE_TRACE_TOKEN, i, now, 1, 2, 3);
    }
}

static struct bench *handled;

static void on_signal(int signal)
{
    (void)signal;
    events(handled);
}

/* Of which there is one; what it takes to get there is not counted. */
static void in_handler(struct bench *bench)
{
    handled = bench;
    if (signal(SIGUSR1, on_signal) == SIG_ERR || raise(SIGUSR1)) {
        abort();
    }
}

static void in_hand(struct bench *bench)
{
    for (uint64_t i = 0; i < bench->records; i++) {
        poise_trace_put(bench->hand, POISE_TRACE_TOKEN, i, poise_clock_ticks(),
                        1, 2, 3);
    }
}

static void span(struct bench *bench)
{
    for (uint64_t i = 0; i < bench->records; i++) {
        struct poise_trace_ring *ring = poise_trace_ring();
        uint64_t enter = poise_trace_ticks(ring);
        poise_trace_put(ring, POISE_TRACE_CALL, i, enter,
                        poise_trace_ticks(ring), 8, 0);
    }
}

static void *events_of(void *arg)
{
    events(arg);
    return NULL;
}

static void many(struct bench *bench)
{
    pthread_t threads[MOST_THREADS];
    for (unsigned i = 0; i < bench->threads; i++) {
        if (pthread_create(&threads[i], NULL, events_of, bench)) {
            abort();
        }
    }
    for (unsigned i = 0; i < bench->threads; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* All that a full ring holds, again and again. */
static void reading(struct bench *bench)
{
    struct poise_trace_event read[64];
    for (uint64_t done = 0; done < bench->records;) {
        struct poise_trace_cursor cursor;
        size_t got;
        if (poise_trace_cursor(bench->view, 0, &cursor)) {
            abort();
        }
        while (done < bench->records &&
               (got = poise_trace_read(&cursor, 64, read)) > 0) {
            sink += read[0].values[0];
            done += got;
        }
    }
}

static const struct {
    const char *name;
    void (*run)(struct bench *bench);
    bool all_threads;
} cases[] = {
    {"loop", nothing},
    {"clock", clock_alone},
    {"off", off},
    {"on: a ring with room", room},
    {"on: a ring that is full", on},
    {"on: ring in hand", in_hand},
    {"on: time given", timed},
    {"on: span of two times", span},
    {"on: ring of 256 records", small},
    {"on: in a signal handler", in_handler},
    {"on: threads at a time", many, true},
    {"read in place", reading},
};
enum { CASES = sizeof cases / sizeof *cases };

static int compare(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static struct poise_trace *make(unsigned capacity)
{
    struct poise_trace_options options = {.capacity = capacity};
    struct poise_trace *trace = NULL;
    if (poise_trace_create(NULL, &options, &trace)) {
        fprintf(stderr, "trace_cost: %s\n", poise_error_last()->why);
        exit(1);
    }
    return trace;
}

int main(int argc, char **argv)
{
    static double ns[CASES][MOST_BATCHES];
    unsigned batches = argc > 1 ? (unsigned)atoi(argv[1]) : 21;
    struct bench bench = {
        .records = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000,
        .threads = argc > 3 ? (unsigned)atoi(argv[3]) : 4,
    };
    if (batches < 1 || batches > MOST_BATCHES || bench.records == 0 ||
        bench.threads < 1 || bench.threads > MOST_THREADS) {
        fprintf(stderr, "usage: trace_cost [BATCHES [RECORDS [THREADS]]]\n");
        return 2;
    }
    bench.large = make(0);
    bench.small = make(256);
    poise_trace_use(bench.large);
    on(&bench); /* this thread's ring is the first, and full */
    bench.hand = poise_trace_claim(bench.large, "hand");
    if (!bench.hand || poise_trace_view_of(bench.large, &bench.view)) {
        return 1;
    }
    for (unsigned b = 0; b < batches; b++) {
        for (int c = 0; c < CASES; c++) {
            uint64_t from = poise_clock_ns();
            bench.own_ns = 0;
            cases[c].run(&bench);
            uint64_t took = poise_clock_ns() - from;
            ns[c][b] = (double)(bench.own_ns ? bench.own_ns : took) /
                       (double)bench.records /
                       (cases[c].all_threads ? bench.threads : 1);
        }
    }
    puts("case,least ns,median ns");
    for (int c = 0; c < CASES; c++) {
        qsort(ns[c], batches, sizeof(double), compare);
        printf("%s,%.2f,%.2f\n", cases[c].name, ns[c][0], ns[c][batches / 2]);
    }
    return 0;
}
