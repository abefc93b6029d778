/*
 * Nodes whose speeds change while a job runs: how soon their shares follow.
 *
 * usage: flow_speeds NODES SIDE BLOCK_US PERIOD_MS PERIODS ADAPT one|all SEED
 *
 * A stencil of SIDE x SIDE blocks a node (NODES is a square), each of which
 * takes BLOCK_US, times its node's factor, to absolute deadlines; most of that
 * is slept, so that many nodes fit few processors. After each period the
 * factors are others: `one` node is four times as slow as the rest, another one
 * each time; or those of `all` are drawn from 1, 2 and 4. ADAPT versions are
 * given out at a time; 0: all at first, in equal shares.
 *
 * Prints for each period "factors F F ...", then while it runs "at NS BLOCKS
 * CHANGES": since the first period began, blocks that were computed, and how
 * often chunks were made anew.
 */
#include <poise/core.h>
#include <poise/flow.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MS UINT64_C(1000000)
#define WATCH_NS (50 * MS)
#define VERSIONS 100000
#define LAGGARD 4
#define NODES_MOST 256

/** What nodes share with the map. */
struct shared {
    _Atomic uint64_t began_ns; /* 0: not yet */
    atomic_bool over;
};

struct bench {
    unsigned nodes, periods, seed;
    bool all;
    uint64_t block_ns, period_ns;
    uint64_t free_ns; /* when this node's emulated processor is */
    struct shared *shared;
};

static unsigned factor_of(const struct bench *bench, uint64_t period,
                          unsigned node)
{
    if (bench->all) {
        uint64_t x = (period * NODES_MOST + node + 1) *
                     (UINT64_C(0x9e3779b97f4a7c15) + 2 * bench->seed);
        x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
        return 1U << ((x >> 40) % 3);
    }
    return node == (bench->seed + 7 * period) % bench->nodes ? LAGGARD : 1;
}

/* Sleep to when the node would have been done at its speed of now. It is late
 * by what the machine is late; but what it needs may have been there long
 * before it was told to compute the block. */
static void emulate(struct bench *bench, struct poise_flow_task *task)
{
    uint64_t ready = poise_flow_ready_ns(task), now = poise_clock_ns();
    uint64_t from = ready > bench->free_ns ? ready : bench->free_ns;
    from = from + bench->block_ns < now ? now - bench->block_ns : from;
    uint64_t began = atomic_load(&bench->shared->began_ns), period = 0;
    if (began != 0 && from > began) {
        period = (from - began) / bench->period_ns;
    }
    bench->free_ns = from + bench->block_ns *
                                factor_of(bench, period, poise_flow_node(task));
    if (now < bench->free_ns) {
        poise_sleep_ns(bench->free_ns - now);
    }
}

static int compute(struct poise_flow_task *task,
                   const struct poise_flow_address *block,
                   const struct poise_flow_chunk *file, void *arg)
{
    static const int64_t ways[][2] = {{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}};
    struct bench *bench = arg;
    uint64_t sum = 1;
    if (atomic_load(&bench->shared->over)) {
        return -ECANCELED;
    }
    for (int w = 0; w < 5 && block->version > 0; w++) {
        struct poise_flow_view from = {0};
        int code =
            poise_flow_read_near(task, block, file, 1, ways[w], false, &from);
        if (code < 0) {
            return code;
        }
        sum += from.data ? *(const uint64_t *)from.data : 0;
    }
    uint64_t *out = poise_flow_make(task, sizeof *out);
    if (!out) {
        return -ENOMEM;
    }
    *out = sum;
    emulate(bench, task);
    return poise_flow_write(task, block, out, sizeof *out);
}

static void watch(const struct poise_flow_watch *now, void *arg)
{
    struct bench *bench = arg;
    uint64_t ns = poise_clock_ns();
    uint64_t began = atomic_load(&bench->shared->began_ns);
    if (began == 0) {
        atomic_store(&bench->shared->began_ns, ns);
        began = ns;
    }
    printf("at %llu %llu %u\n", (unsigned long long)(ns - began),
           (unsigned long long)now->blocks, now->rechunkings);
    if (ns - began >= bench->periods * bench->period_ns) {
        atomic_store(&bench->shared->over, true);
    }
}

static void print_factors(const struct bench *bench)
{
    for (unsigned p = 0; p < bench->periods; p++) {
        printf("factors");
        for (unsigned n = 0; n < bench->nodes; n++) {
            printf(" %u", factor_of(bench, p, n));
        }
        printf("\n");
    }
}

static int run(struct bench *bench, int64_t side, int64_t adapt)
{
    static const struct poise_flow_pattern around = {.kind = POISE_FLOW_CROSS,
                                                     .back = 1};
    const struct poise_flow_options options = {.nodes = bench->nodes,
                                               .watch = watch,
                                               .watch_arg = bench,
                                               .watch_ns = WATCH_NS};
    const struct poise_flow_file file = {
        .name = "plate",
        .shape = {.dims = 2,
                  .versions = {0, VERSIONS},
                  .index = {{0, side}, {0, side}}},
        .adapt = adapt};
    const struct poise_flow_job job = {.files = &file,
                                       .file_count = 1,
                                       .app = {.compute = compute,
                                               .patterns = &around,
                                               .pattern_count = 1,
                                               .arg = bench}};
    struct poise_buf words = {0};
    int code = poise_flow_run(&job, &options, NULL);
    if (code != -ECANCELED) {
        poise_error_format(poise_error_last(), &words);
        fprintf(stderr, "flow_speeds: %s\n", poise_buf_str(&words));
        poise_buf_free(&words);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 9) {
        fputs("usage: flow_speeds NODES SIDE BLOCK_US PERIOD_MS PERIODS ADAPT "
              "one|all SEED\n",
              stderr);
        return 2;
    }
    struct bench bench = {.nodes = (unsigned)atoi(argv[1]),
                          .block_ns = (uint64_t)atoll(argv[3]) * 1000,
                          .period_ns = (uint64_t)atoll(argv[4]) * MS,
                          .periods = (unsigned)atoi(argv[5]),
                          .all = strcmp(argv[7], "all") == 0,
                          .seed = (unsigned)atoi(argv[8])};
    int64_t down = 1;
    while (down * down < bench.nodes) {
        down++;
    }
    if (down * down != bench.nodes || bench.nodes > NODES_MOST ||
        bench.period_ns == 0) {
        fputs("flow_speeds: NODES is a square of at most 256\n", stderr);
        return 2;
    }
    bench.shared = mmap(NULL, sizeof *bench.shared, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (bench.shared == MAP_FAILED) {
        perror("flow_speeds");
        return 1;
    }
    print_factors(&bench);
    fflush(stdout);
    return run(&bench, down * atoll(argv[2]), atoll(argv[6]));
}
