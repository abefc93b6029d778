/*
 * How small tasks of room flow may be: efficiency against their size, for
 * several patterns of dependencies, and METG, the smallest size at which half
 * of the time is work (Task Bench's metric).
 *
 * usage: flow_grain PATTERN WIDTH VERSIONS NODES THREADS
 *
 * VERSIONS is for the smallest tasks; larger ones have as many as take a
 * quarter of a second of work.
 *
 * PATTERN is trivial, stencil, sweep, fft, tree or random; WIDTH a power of
 * two. Blocks have 16 bytes; a task of a size does so many rounds of
 * arithmetic, whose time is measured alone first. Prints a line for each size:
 * microseconds of work in a task, microseconds that a task took of a thread,
 * efficiency; and METG at the end, with how long a line of memory takes from
 * one processor's cache to another's and back: on a virtual machine that can be
 * another time in each run.
 */
#include <poise/flow.h>

#include <poise/wait.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 14, MULTIPLIER = 5 };
/** Work of one run, on one core. */
#define RUN_NS 250e6
#define VERSIONS_LEAST 64

static const char *const patterns[] = {"trivial", "stencil", "sweep", "fft",
                                       "tree",    "random",  NULL};
enum { TRIVIAL, STENCIL, SWEEP, FFT, TREE, RANDOM };

struct bench {
    int pattern;
    int64_t width, inverse; /* of MULTIPLIER, modulo width */
    uint64_t rounds;
};

static int add(struct poise_flow_list *out, const struct bench *bench,
               int64_t version, int64_t x)
{
    struct poise_flow_address a = {.version = version, .index = {x}};
    return x < 0 || x >= bench->width ? 0 : poise_flow_list_add(out, &a);
}

/* What moves the places of a version about. */
static int64_t shift(int64_t version, int64_t width)
{
    return (int64_t)(poise_hash_u64((uint64_t)version) % (uint64_t)width);
}

static int other(const struct bench *bench, int64_t version, int64_t x,
                 bool forward, int64_t *out)
{
    int64_t w = bench->width, to = version + (forward ? 1 : 0);
    int bits = 0;
    while (INT64_C(1) << (bits + 1) <= w) {
        bits++;
    }
    if (bench->pattern == FFT) {
        *out = bits > 0 ? x ^ INT64_C(1) << (to % bits) : x;
    } else if (forward) {
        *out = ((x - shift(to, w) + w) * bench->inverse) % w;
    } else {
        *out = (x * MULTIPLIER + shift(to, w)) % w;
    }
    return *out != x;
}

static int depend(struct poise_flow_task *task,
                  const struct poise_flow_address *block,
                  const struct poise_flow_chunk *file,
                  enum poise_flow_direction direction,
                  struct poise_flow_list *out, void *arg)
{
    const struct bench *bench = arg;
    bool forward = direction == POISE_FLOW_FORWARD;
    int64_t by = forward ? 1 : -1, x = block->index[0], y;
    int64_t version = block->version + by;
    int code = 0;
    (void)task;
    if (bench->pattern == SWEEP) {
        code = add(out, bench, block->version, x + by);
    }
    if (code < 0 || version < 0 || version >= file->versions.to) {
        return code < 0 ? code : 1;
    }
    if (bench->pattern == TREE) {
        code = add(out, bench, version, forward ? 2 * x : x / 2);
        if (code == 0 && forward) {
            code = add(out, bench, version, 2 * x + 1);
        }
        return code < 0 ? code : 1;
    }
    code = add(out, bench, version, x);
    if (code == 0 && bench->pattern == STENCIL) {
        code = add(out, bench, version, x - 1);
        code = code < 0 ? code : add(out, bench, version, x + 1);
    }
    if (code == 0 && bench->pattern >= FFT &&
        other(bench, block->version, x, forward, &y)) {
        code = add(out, bench, version, y);
    }
    return code < 0 ? code : 1;
}

static uint64_t work(uint64_t rounds, uint64_t value)
{
    for (uint64_t r = 0; r < rounds; r++) {
        value = value * UINT64_C(6364136223846793005) + 1442695040888963407;
        __asm__ volatile("" : "+r"(value));
    }
    return value;
}

static int compute(struct poise_flow_task *task,
                   const struct poise_flow_address *block,
                   const struct poise_flow_chunk *file, void *arg)
{
    const struct bench *bench = arg;
    uint64_t *out = poise_flow_make(task, 2 * sizeof *out);
    (void)file;
    if (!out) {
        return -ENOMEM;
    }
    out[0] = work(bench->rounds, (uint64_t)block->version);
    out[1] = (uint64_t)block->index[0];
    return poise_flow_write(task, block, out, 2 * sizeof *out);
}

/* Nanoseconds of one round. */
static double round_ns(void)
{
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        uint64_t began = poise_clock_ns();
        work(1000000, (uint64_t)i);
        double took = (double)(poise_clock_ns() - began) / 1e6;
        best = took < best ? took : best;
    }
    return best;
}

enum { TURNS = 100000 };

static void *answer(void *arg)
{
    atomic_int *turn = arg;
    for (int i = 0; i < TURNS; i++) {
        while (atomic_load(turn) != 2 * i + 1) {
            poise_pause();
        }
        atomic_store(turn, 2 * i + 2);
    }
    return NULL;
}

/* Nanoseconds of a line's way to another thread's processor and back. */
static double line_ns(void)
{
    _Alignas(64) atomic_int turn = 0;
    pthread_t thread;
    if (pthread_create(&thread, NULL, answer, &turn) != 0) {
        return 0;
    }
    uint64_t began = poise_clock_ns();
    for (int i = 0; i < TURNS; i++) {
        atomic_store(&turn, 2 * i + 1);
        while (atomic_load(&turn) != 2 * i + 2) {
            poise_pause();
        }
    }
    double took = (double)(poise_clock_ns() - began) / TURNS;
    pthread_join(thread, NULL);
    return took;
}

static int run(struct bench *bench, int64_t versions, unsigned nodes,
               unsigned threads, double *task_ns)
{
    const struct poise_flow_file file = {
        .name = "grain",
        .shape = {.dims = 1,
                  .versions = {0, versions},
                  .index = {{0, bench->width}}}};
    const struct poise_flow_job job = {
        .files = &file,
        .file_count = 1,
        .app = {.depend = depend, .compute = compute, .arg = bench}};
    const struct poise_flow_options options = {.nodes = nodes,
                                               .threads = threads};
    struct poise_flow_stats stats;
    int code = poise_flow_run(&job, &options, &stats);
    if (code == 0) {
        *task_ns = (double)(stats.wall_ns - stats.start_ns) *
                   (nodes > 0 ? nodes : 1) * threads / (double)stats.blocks;
        poise_flow_stats_free(&stats);
    }
    return code;
}

/* So many versions that the work is enough for a time, but not for long. */
static int64_t versions_for(double size_ns, int64_t width, int64_t most)
{
    double enough = RUN_NS / (size_ns * (double)width);
    int64_t versions = enough < (double)most ? (int64_t)enough : most;
    return versions < VERSIONS_LEAST ? VERSIONS_LEAST : versions;
}

int main(int argc, char **argv)
{
    struct bench bench = {.pattern = -1};
    struct poise_buf words = {0};
    double ns = round_ns(), metg = -1, before_size = 0, before = 0;
    int code = 0;
    for (int p = 0; argc == 6 && patterns[p]; p++) {
        bench.pattern = strcmp(patterns[p], argv[1]) ? bench.pattern : p;
    }
    bench.width = argc == 6 ? atoll(argv[2]) : 0;
    if (bench.pattern < 0 || bench.width < 1 ||
        (bench.width & (bench.width - 1))) {
        fputs("usage: flow_grain PATTERN WIDTH VERSIONS NODES THREADS\n",
              stderr);
        return 2;
    }
    while (bench.width > 1 && bench.inverse * MULTIPLIER % bench.width != 1) {
        bench.inverse++;
    }
    for (int i = POINTS; code == 0 && i-- > 0;) {
        double task_ns = 0;
        bench.rounds = UINT64_C(64) << i;
        double size = (double)bench.rounds * ns;
        code = run(&bench, versions_for(size, bench.width, atoll(argv[3])),
                   (unsigned)atoi(argv[4]), (unsigned)atoi(argv[5]), &task_ns);
        double share = code == 0 ? size / task_ns : 0;
        printf("%.3f %.3f %.3f\n", size / 1e3, task_ns / 1e3, share);
        if (metg < 0 && share < 0.5 && before >= 0.5) {
            /* Between two sizes, by the straight line. */
            metg = before_size -
                   (before_size - size) * (before - 0.5) / (before - share);
        }
        before = share;
        before_size = size;
    }
    if (code < 0) {
        poise_error_format(poise_error_last(), &words);
        fprintf(stderr, "flow_grain: %s\n", poise_buf_str(&words));
        poise_buf_free(&words);
        return 1;
    }
    printf("METG %.3f us, a line there and back %.0f ns\n", metg / 1e3,
           atoi(argv[4]) || atoi(argv[5]) > 1 ? line_ns() : 0);
    return 0;
}
