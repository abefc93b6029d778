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
#include "grain.h"

#include <poise/flow.h>
#include <poise/wait.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static int depend(struct poise_flow_task *task,
                  const struct poise_flow_address *block,
                  const struct poise_flow_chunk *file,
                  enum poise_flow_direction direction,
                  struct poise_flow_list *out, void *arg)
{
    struct grain_at list[GRAIN_MOST];
    int count =
        grain_list(arg, block->version, block->index[0],
                   direction == POISE_FLOW_FORWARD, file->versions.to, list);
    int code = 0;
    (void)task;
    for (int i = 0; code == 0 && i < count; i++) {
        struct poise_flow_address at = {.version = list[i].version,
                                        .index = {list[i].x}};
        code = poise_flow_list_add(out, &at);
    }
    return code < 0 ? code : 1;
}

static int compute(struct poise_flow_task *task,
                   const struct poise_flow_address *block,
                   const struct poise_flow_chunk *file, void *arg)
{
    const struct grain *grain = arg;
    uint64_t *out = poise_flow_make(task, 2 * sizeof *out);
    (void)file;
    if (!out) {
        return -ENOMEM;
    }
    out[0] = grain_work(grain->rounds, (uint64_t)block->version);
    out[1] = (uint64_t)block->index[0];
    return poise_flow_write(task, block, out, 2 * sizeof *out);
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

static int run(struct grain *grain, int64_t versions, double *task_ns,
               void *arg)
{
    const struct poise_flow_options *options = arg;
    const struct poise_flow_file file = {
        .name = "grain",
        .shape = {.dims = 1,
                  .versions = {0, versions},
                  .index = {{0, grain->width}}}};
    const struct poise_flow_job job = {
        .files = &file,
        .file_count = 1,
        .app = {.depend = depend, .compute = compute, .arg = grain}};
    struct poise_flow_stats stats;
    int code = poise_flow_run(&job, options, &stats);
    if (code == 0) {
        *task_ns = (double)(stats.wall_ns - stats.start_ns) *
                   (options->nodes > 0 ? options->nodes : 1) *
                   options->threads / (double)stats.blocks;
        poise_flow_stats_free(&stats);
    }
    return code;
}

int main(int argc, char **argv)
{
    struct grain grain;
    struct poise_buf words = {0};
    double ns = grain_round_ns(), metg_ns;
    if (argc != 6 || !grain_init(&grain, argv[1], atoll(argv[2]))) {
        fputs("usage: flow_grain PATTERN WIDTH VERSIONS NODES THREADS\n",
              stderr);
        return 2;
    }
    grain.versions_least = atoll(argv[3]);
    struct poise_flow_options options = {.nodes = (unsigned)atoi(argv[4]),
                                         .threads = (unsigned)atoi(argv[5])};
    if (grain_measure(&grain, ns, true, run, &options, &metg_ns) < 0) {
        poise_error_format(poise_error_last(), &words);
        fprintf(stderr, "flow_grain: %s\n", poise_buf_str(&words));
        poise_buf_free(&words);
        return 1;
    }
    printf("METG %.3f us, a line there and back %.0f ns\n", metg_ns / 1e3,
           options.nodes || options.threads > 1 ? line_ns() : 0);
    return 0;
}
