/*
 * What copies cost while nobody dies: one run in which the map draws lines for
 * a while, as often as pays, then none for as long, and so on. So both are
 * measured on the same processes and pages, a fraction of a second apart.
 *
 * usage: flow_copies SIDE BLOCK PERIOD_MS PAIRS NODES [EVERY]
 *
 * A plate of SIDE x SIDE cells in blocks of BLOCK x BLOCK, Jacobi. Prints a
 * line for each pair of periods, in turns the one and the other first:
 * nanoseconds on the clock, and of all processors, that a block took without
 * lines and with them, the lines of the second, and its milliseconds. With
 * EVERY lines come after so many versions, not as often as pays: then the cost
 * of one is known the better.
 *
 * The map looks at `replicate` each time it might ask for a line, so that this
 * bench, in the map's process, can change it.
 */
#include "flow/map/internal.h"

#include <poise/core.h>
#include <poise/flow.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
/** Of a period, before it counts: what was begun in the one before ends. */
#define SETTLE_NS (50 * MS)
#define VERSIONS 4000000
#define NODES_MOST 64

/** What nodes share with the bench. */
struct shared {
    _Atomic uint64_t blocks;
    atomic_bool over;
};

struct sample {
    uint64_t ns, cpu_ns, blocks;
    unsigned lines;
};

struct bench {
    int64_t side; /* of a block, in cells */
    struct shared *shared;
    struct poise_flow_options *options;
    uint64_t period_ns, began_ns; /* 0: not yet */
    unsigned period, periods;
    bool counts;
    unsigned every; /* versions between lines; 0: as pays */
    unsigned lines; /* that were complete */
    int64_t line;
    struct sample begun, found[2]; /* without, with */
};

/* ---- the job ------------------------------------------------------------ */

static int depend(struct poise_flow_task *task,
                  const struct poise_flow_address *block,
                  const struct poise_flow_chunk *file,
                  enum poise_flow_direction direction,
                  struct poise_flow_list *out, void *arg)
{
    static const struct poise_flow_pattern around = {.kind = POISE_FLOW_CROSS,
                                                     .back = 1};
    const struct poise_flow_file files = {.shape = *file};
    (void)task;
    (void)arg;
    int code =
        poise_flow_pattern_list(&files, &around, 1, block, direction, out);
    return code < 0 ? code : 1;
}

static int compute(struct poise_flow_task *task,
                   const struct poise_flow_address *block,
                   const struct poise_flow_chunk *file, void *arg)
{
    static const int64_t ways[][2] = {{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}};
    const struct bench *bench = arg;
    struct poise_flow_view from[5] = {{0}};
    int64_t side = bench->side;
    size_t bytes = (size_t)(side * side) * sizeof(double);
    double *out = poise_flow_make(task, bytes);
    int code = out ? 0 : -ENOMEM;
    if (atomic_load_explicit(&bench->shared->over, memory_order_relaxed)) {
        return -ECANCELED;
    }
    for (int w = 0; code == 0 && w < 5 && block->version > 0; w++) {
        code = poise_flow_read_near(task, block, file, 1, ways[w], false,
                                    &from[w]);
    }
    if (code < 0) {
        return code;
    }
    for (int64_t i = 0; i < side; i++) {
        const double *own = from[0].data, *up = from[1].data;
        const double *low = from[2].data;
        for (int64_t j = 0; j < side; j++) {
            const double *c = own ? own + i * side + j : NULL;
            double n = !c      ? 0
                       : i > 0 ? c[-side]
                       : up    ? up[(side - 1) * side + j]
                               : 0;
            double s = !c ? 0 : i < side - 1 ? c[side] : low ? low[j] : 0;
            double w = c && j > 0 ? c[-1] : 0;
            double e = c && j < side - 1 ? c[1] : 0;
            out[i * side + j] =
                c ? (n + s + w + e) / 4 : (double)((i * 37 + j * 11) % 100);
        }
    }
    atomic_fetch_add_explicit(&bench->shared->blocks, 1, memory_order_relaxed);
    return poise_flow_write(task, block, out, bytes);
}

/* ---- measuring ---------------------------------------------------------- */

/* Processor time of this process and of its children. */
static uint64_t cpu_ns(void)
{
    char path[64];
    struct timespec used;
    int pid;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    uint64_t ns =
        (uint64_t)used.tv_sec * UINT64_C(1000000000) + (uint64_t)used.tv_nsec;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "r");
    while (file && fscanf(file, "%d", &pid) == 1) {
        clockid_t clock;
        if (clock_getcpuclockid(pid, &clock) == 0 &&
            clock_gettime(clock, &used) == 0) {
            ns += (uint64_t)used.tv_sec * UINT64_C(1000000000) +
                  (uint64_t)used.tv_nsec;
        }
    }
    if (file) {
        fclose(file);
    }
    return ns;
}

static void tell(struct bench *bench)
{
    const struct sample *off = &bench->found[0], *on = &bench->found[1];
    printf("%.1f %.1f %.1f %.1f %u %.1f\n",
           (double)off->ns / (double)off->blocks,
           (double)off->cpu_ns / (double)off->blocks,
           (double)on->ns / (double)on->blocks,
           (double)on->cpu_ns / (double)on->blocks, on->lines,
           (double)on->ns / 1e6);
    fflush(stdout);
}

static void period_begin(struct bench *bench, uint64_t now)
{
    bool on = (bench->period + 1) / 2 % 2; /* off, on, on, off, ... */
    bench->options->replicate = on ? bench->every : POISE_FLOW_REPLICATE_NEVER;
    bench->began_ns = now;
    bench->counts = false;
}

static struct sample sample_now(const struct bench *bench)
{
    return (struct sample){poise_clock_ns(), cpu_ns(),
                           atomic_load(&bench->shared->blocks), bench->lines};
}

static void watch(const struct poise_flow_watch *now, void *arg)
{
    struct bench *bench = arg;
    uint64_t ns = poise_clock_ns();
    bench->lines += now->line != bench->line;
    bench->line = now->line;
    if (bench->began_ns == 0) {
        period_begin(bench, ns);
    }
    if (!bench->counts && ns - bench->began_ns >= SETTLE_NS) {
        bench->counts = true;
        bench->begun = sample_now(bench);
    }
    if (ns - bench->began_ns < bench->period_ns) {
        return;
    }
    struct sample end = sample_now(bench), *out;
    out = &bench->found[(bench->period + 1) / 2 % 2];
    *out = (struct sample){
        end.ns - bench->begun.ns, end.cpu_ns - bench->begun.cpu_ns,
        end.blocks - bench->begun.blocks, end.lines - bench->begun.lines};
    if (++bench->period % 2 == 0 && bench->period > 2) {
        tell(bench); /* the first pair warms up */
    }
    atomic_store(&bench->shared->over, bench->period >= bench->periods);
    period_begin(bench, ns);
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fputs("usage: flow_copies SIDE BLOCK PERIOD_MS PAIRS NODES [EVERY]\n",
              stderr);
        return 2;
    }
    int64_t side = atoll(argv[1]) / atoll(argv[2]);
    struct poise_flow_options options = {
        .nodes = (unsigned)atoi(argv[5]), .watch = watch, .watch_ns = 5 * MS};
    struct bench bench = {.side = atoll(argv[2]),
                          .options = &options,
                          .period_ns = (uint64_t)atoll(argv[3]) * MS,
                          .periods = 2 * ((unsigned)atoi(argv[4]) + 1),
                          .every = argc > 6 ? (unsigned)atoi(argv[6]) : 0};
    const struct poise_flow_file file = {
        .name = "plate",
        .shape = {.dims = 2,
                  .versions = {0, VERSIONS},
                  .index = {{0, side}, {0, side}}}};
    const struct poise_flow_job job = {
        .files = &file,
        .file_count = 1,
        .app = {.depend = depend, .compute = compute, .arg = &bench}};
    struct poise_flow_stats stats = {0};
    struct poise_buf words = {0};
    options.watch_arg = &bench;
    bench.shared = mmap(NULL, sizeof *bench.shared, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (bench.shared == MAP_FAILED) {
        perror("flow_copies");
        return 1;
    }
    int code = flow_map_run(&job, &options, &stats);
    if (code != -ECANCELED) {
        poise_error_format(poise_error_last(), &words);
        fprintf(stderr, "flow_copies: %s\n", poise_buf_str(&words));
        poise_buf_free(&words);
        return 1;
    }
    return 0;
}
