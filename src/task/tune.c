/*
 * How many tasks are in flight. Workers that wait for a disk or a server leave
 * the processor free; then more of them pay, up to a point that only
 * measuring finds. A small thread looks every 10 ms at the processor time used
 * and at the progress made: while the cores are not busy it doubles the number
 * of workers, keeps what raised the rate by a tenth, and goes back otherwise;
 * after a while it tries again, upwards and downwards. When the cores are busy
 * it returns to as many workers as there should be threads.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TUNE_SAMPLE_NS UINT64_C(10000000)
/** Utilisation of the cores below which more may help, above which fewer do. */
#define TUNE_LOW 0.7
#define TUNE_HIGH 0.9
/** The gain for which more are kept; the loss for which fewer are not. */
#define TUNE_GAIN 1.10
#define TUNE_LOSS 0.95
/** Samples: of a probe; between probes at first and at most; of high
 * utilisation before going down. */
enum { TUNE_PROBE = 3, TUNE_HOLD = 20, TUNE_HOLD_MOST = 500, TUNE_CALM = 3 };

void task_tune_init(struct task_tune *tune, unsigned threads, unsigned most,
                    unsigned cores)
{
    *tune = (struct task_tune){.threads = threads,
                               .most = most,
                               .cores = cores,
                               .target = threads,
                               .pause = TUNE_HOLD};
}

static void tune_probe(struct task_tune *tune, unsigned target)
{
    tune->before = tune->rate;
    tune->previous = tune->target;
    tune->target = target;
    tune->probing = true;
    tune->samples = 0;
    tune->steps = 0;
    tune->wall_ns = 0;
}

/* Whether the probe is decided. */
static bool tune_judge(struct task_tune *tune, const struct task_sample *sample)
{
    tune->samples++;
    tune->steps += sample->steps;
    tune->wall_ns += sample->wall_ns;
    double rate = (double)tune->steps / (double)tune->wall_ns;
    bool up = tune->target > tune->previous;
    if (up && rate >= tune->before * TUNE_GAIN) {
        tune->pause = TUNE_HOLD;
        tune->hold = 0;
    } else if (tune->samples < TUNE_PROBE) {
        return false;
    } else if (!up && rate >= tune->before * TUNE_LOSS) {
        tune->hold = tune->pause;
    } else {
        tune->target = tune->previous;
        rate = tune->before;
        tune->hold = tune->pause;
        tune->pause =
            tune->pause * 2 < TUNE_HOLD_MOST ? tune->pause * 2 : TUNE_HOLD_MOST;
        tune->downwards = up && tune->target > tune->threads;
    }
    tune->probing = false;
    tune->rate = rate;
    return true;
}

unsigned task_tune_step(struct task_tune *tune,
                        const struct task_sample *sample)
{
    unsigned running = tune->target < tune->cores ? tune->target : tune->cores;
    double busy = (double)sample->cpu_ns / (double)sample->wall_ns;
    busy = sample->runnable > busy ? sample->runnable : busy;
    busy /= (double)running;
    if (tune->probing) {
        if (!tune_judge(tune, sample)) {
            return tune->target;
        }
    } else {
        double rate = (double)sample->steps / (double)sample->wall_ns;
        tune->rate = tune->rate > 0 ? (tune->rate + rate) / 2 : rate;
    }
    tune->calm = busy > TUNE_HIGH ? tune->calm + 1 : 0;
    if (tune->calm >= TUNE_CALM && tune->target > tune->threads) {
        unsigned half = tune->target / 2;
        tune->target = half > tune->threads ? half : tune->threads;
        tune->calm = 0;
        tune->rate = 0;
    } else if (tune->hold > 0) {
        tune->hold--;
    } else if (tune->downwards) {
        unsigned half = tune->target / 2;
        tune->downwards = false;
        tune_probe(tune, half > tune->threads ? half : tune->threads);
    } else if (busy < TUNE_LOW && tune->target < tune->most) {
        unsigned more = tune->target * 2;
        tune_probe(tune, more < tune->most ? more : tune->most);
    }
    return tune->target;
}

/* ---- the thread ------------------------------------------------------------
 */

static void tune_apply(struct poise_pool *pool, unsigned target)
{
    unsigned before = __atomic_load_n(&pool->target, __ATOMIC_RELAXED);
    if (target == before) {
        return;
    }
    __atomic_store_n(&pool->target, target, __ATOMIC_SEQ_CST);
    for (unsigned i = before; i < target; i++) {
        if (!pool->workers[i].started && !pool->workers[i].communicates) {
            task_worker_start(&pool->workers[i]);
        }
    }
    if (target > __atomic_load_n(&pool->target_most, __ATOMIC_RELAXED)) {
        __atomic_store_n(&pool->target_most, target, __ATOMIC_RELAXED);
    }
    poise_event_signal(&pool->unpark);
}

static uint64_t tune_steps(const struct poise_pool *pool)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < pool->worker_count; i++) {
        sum += __atomic_load_n(&pool->workers[i].steps, __ATOMIC_RELAXED);
    }
    return sum;
}

/* Whether a thread runs, or would if it had a processor: on a machine that is
 * busy with other things the processor time alone does not tell who waits for
 * a disk. */
static bool tune_runs(pid_t thread)
{
    char text[128];
    snprintf(text, sizeof(text), "/proc/self/task/%d/stat", (int)thread);
    int fd = open(text, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t len = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[len > 0 ? len : 0] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && strncmp(name_end, ") R", 3) == 0;
}

static unsigned tune_runnable(const struct poise_pool *pool)
{
    unsigned sum = 0;
    unsigned active = __atomic_load_n(&pool->target, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < active; i++) {
        pid_t thread =
            __atomic_load_n(&pool->workers[i].thread_id, __ATOMIC_RELAXED);
        sum += thread != 0 && tune_runs(thread);
    }
    return sum;
}

static unsigned tune_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0) {
        return (unsigned)CPU_COUNT(&set);
    }
    return 1;
}

static void *tune_main(void *arg)
{
    struct poise_pool *pool = arg;
    struct task_tune tune;
    struct task_sample last = {0};
    task_tune_init(&tune, pool->threads, pool->worker_count, tune_cores());
    for (bool first = true;; first = false) {
        uint32_t seen = poise_event_seen(&pool->tune_quit);
        if (__atomic_load_n(&pool->tune_over, __ATOMIC_SEQ_CST)) {
            return NULL;
        }
        struct task_sample now = {.wall_ns = poise_clock_ns(),
                                  .cpu_ns = poise_clock_cpu_ns(),
                                  .steps = tune_steps(pool)};
        struct task_sample since = {
            now.wall_ns - last.wall_ns, now.cpu_ns - last.cpu_ns,
            now.steps - last.steps, tune_runnable(pool)};
        if (!first && since.wall_ns >= TUNE_SAMPLE_NS / 2) {
            tune_apply(pool, task_tune_step(&tune, &since));
        }
        last = now;
        poise_event_wait(&pool->tune_quit, seen, TUNE_SAMPLE_NS);
    }
}

void task_tune_start(struct poise_pool *pool)
{
    /* Without it, and without an error: it only makes things faster. */
    pool->tuning = pool->worker_count > pool->threads &&
                   pthread_create(&pool->tuner, NULL, tune_main, pool) == 0;
}

void task_tune_end(struct poise_pool *pool)
{
    if (pool->tuning) {
        __atomic_store_n(&pool->tune_over, true, __ATOMIC_SEQ_CST);
        poise_event_signal(&pool->tune_quit);
        pthread_join(pool->tuner, NULL);
        pool->tuning = false;
    }
}
