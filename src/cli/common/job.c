/* What every walk has around it: the world, signals, threads, progress. */
#include "job.h"

#include <poise/trace.h>

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

/* Set by the signal handler, which has no argument. */
static volatile int interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

/* The first signal ends the walk in order, the second one at once. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal,
                               .sa_flags = (int)SA_RESETHAND};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void cli_engine_defaults(struct cli_engine *engine)
{
    *engine = (struct cli_engine){
        .max_in_flight = 32,
        .policy = POISE_POLICY_HYBRID,
        .split = POISE_SPLIT_HALF,
        .progress = isatty(STDERR_FILENO) != 0,
    };
}

/* The cores of this process. A launcher that binds its ranks has divided them
 * already; else the ranks of this node share what all of them may use. */
static unsigned own_cores(struct poise_world *world)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int cores = online > 0 ? (int)online : 1;
    const int *ranks;
    int here = poise_world_group(world, POISE_LEVEL_NODE, &ranks);
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        int bound = CPU_COUNT(&set);

        if (bound < cores) {
            return bound > 0 ? (unsigned)bound : 1;
        }
    }
    return cores > here && here > 0 ? (unsigned)(cores / here)
           : here > 1               ? 1
                                    : (unsigned)cores;
}

int cli_job_start(struct cli_job *job, const char *name,
                  const struct cli_engine *engine,
                  struct poise_walk_options *walk)
{
    struct poise_pool_options *pool = &walk->pool;
    int code;

    *job = (struct cli_job){.name = name};
    code = poise_world_create(
        &(struct poise_world_options){.trace = engine->trace}, &job->world);
    if (code < 0) {
        return cli_fail(name, code);
    }
    job->rank = poise_world_rank(job->world);
    job->size = poise_world_size(job->world);
    job->progress = engine->progress && job->rank == 0;
    catch_signals();
    pool->policy = (enum poise_policy)engine->policy;
    pool->split = (enum poise_split)engine->split;
    pool->batch = (size_t)engine->batch;
    pool->threads =
        engine->threads ? (unsigned)engine->threads : own_cores(job->world);
    pool->threads_max = (unsigned)engine->max_in_flight;
    pool->queue_bytes = engine->queue_memory;
    pool->checkpoint = engine->checkpoint;
    pool->checkpoint_ns = engine->checkpoint_interval;
    pool->resume = engine->resume;
    pool->seed = (uint64_t)engine->seed;
    job->seed = pool->seed;
    pool->interrupt = &interrupted;
    pool->progress_ns = cli_progress_ns(0);
    if (!poise_world_threads_allowed(job->world)) {
        if (pool->threads > 1 && job->rank == 0) {
            cli_say(name, "this MPI allows one thread for each rank");
        }
        pool->threads = 1;
        pool->threads_max = 1;
    }
    poise_trace_name("caller");
    return 0;
}

void cli_job_end(struct cli_job *job)
{
    poise_world_destroy(job->world);
}

struct poise_world *cli_job_world(const struct cli_job *job)
{
    return job->size > 1 ? job->world : NULL;
}

uint64_t cli_progress_rate(struct cli_progress *progress, uint64_t entries,
                           uint64_t now_ns)
{
    if (now_ns > progress->then_ns && entries >= progress->entries) {
        double rate = (double)(entries - progress->entries) * 1e9 /
                      (double)(now_ns - progress->then_ns);

        progress->rate +=
            (rate - progress->rate) * (progress->calls > 1 ? 0.1 : 1);
    }
    progress->entries = entries;
    progress->then_ns = now_ns;
    return (uint64_t)progress->rate;
}

void cli_progress_hook(const struct poise_pool_stats *stats, void *arg)
{
    struct cli_job *job = arg;
    struct poise_buf out = {0};
    uint64_t rate =
        cli_progress_rate(&job->line, stats->sum.done, stats->wall_ns);

    /* The first call tells where a resumed walk begins. */
    if (job->line.calls++ == 0) {
        return;
    }
    poise_buf_puts(&out, "\r\033[K");
    poise_human_count(&out, stats->sum.done);
    poise_buf_puts(&out, " entries, ");
    poise_human_count(&out, rate);
    poise_buf_puts(&out, "/s, ");
    poise_human_count(&out, stats->sum.tasks_queued);
    poise_buf_printf(&out, " directories waiting, %llu in flight, ",
                     (unsigned long long)stats->sum.active);
    poise_human_ns(&out, stats->wall_ns);
    if (!out.error) {
        (void)!write(STDERR_FILENO, out.data, out.len);
    }
    poise_buf_free(&out);
}

int cli_error_hook(struct poise_worker *worker, const struct poise_error *err,
                   void *arg)
{
    struct cli_job *job = arg;

    (void)worker;
    cli_progress_wipe(job->progress);
    cli_print_error(job->name, err);
    return 0;
}

int cli_job_code(struct cli_job *job, int code, uint64_t errors)
{
    if (code == -EINTR) {
        if (job->rank == 0) {
            cli_say(job->name, "interrupted: not all was done");
        }
        return CLI_INTERRUPTED;
    }
    if (code < 0) {
        int status = code == -EINVAL    ? CLI_WRONG_USE
                     : code == -ENOTSUP ? CLI_LACKS
                                        : CLI_PARTLY;

        if (job->rank == 0) {
            cli_print_error(job->name, poise_error_last());
        }
        return status;
    }
    return errors > 0 ? CLI_PARTLY : CLI_DONE;
}
