/*
 * How many tasks are in flight. Workers that wait for a disk or a server leave
 * the processor free; then more of them pay, up to a point that only
 * measuring finds. A small thread looks every 10 ms at how many workers ran or
 * were ready to, and at the progress made: while the cores are not busy it
 * adds as many as by this measure would keep them so, keeps them if that
 * raised the rate, and goes back otherwise; after a while it tries again,
 * upwards and downwards. When hardly a worker waits any more, half of them are
 * tried, down to as many as there should be threads. The thread itself starts
 * only when processor time is left over: where all is in memory it never
 * exists.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define TUNE_SAMPLE_NS UINT64_C(10000000)
/** Utilisation of the cores below which more may help; share of the workers
 * that run or are ready above which fewer do. */
#define TUNE_LOW 0.85
#define TUNE_HIGH 0.97
/** Workers that run or are ready, wished for on each core. */
#define TUNE_WISH 1.5
/** The gain for which more are kept; the loss for which fewer are not. */
#define TUNE_GAIN 1.07
#define TUNE_LOSS 0.95
/** Samples: of a probe; between probes at first and at most; of hardly any
 * waiting before going down, at first and at most. */
enum {
    TUNE_PROBE = 3,
    TUNE_INTERVAL = 10,
    TUNE_INTERVAL_MOST = 500,
    TUNE_CALM = 5,
    TUNE_CALM_MOST = 100
};

void task_tune_init(struct task_tune *tune, unsigned threads, unsigned most,
                    unsigned cores)
{
    *tune = (struct task_tune){.threads = threads,
                               .most = most,
                               .cores = cores,
                               .target = threads,
                               .fresh = true,
                               .interval = TUNE_INTERVAL,
                               .calm_wanted = TUNE_CALM};
}

static void tune_set(struct task_tune *tune, unsigned target)
{
    tune->target = target;
    tune->fresh = true;
    tune->calm = 0;
}

static void tune_probe(struct task_tune *tune, unsigned target)
{
    tune->before = tune->rate;
    tune->previous = tune->target;
    tune->probing = true;
    tune->samples = 0;
    tune->steps = 0;
    tune->wall_ns = 0;
    tune_set(tune, target);
}

static unsigned tune_twice(unsigned samples, unsigned most)
{
    return samples * 2 < most ? samples * 2 : most;
}

/* The probe did not pay: back, and it takes longer to the next one. */
static void tune_revert(struct task_tune *tune, bool up)
{
    tune_set(tune, tune->previous);
    tune->wait = tune->interval;
    if (up) {
        tune->interval = tune_twice(tune->interval, TUNE_INTERVAL_MOST);
        tune->downwards = tune->target > tune->threads;
    } else {
        tune->calm_wanted = tune_twice(tune->calm_wanted, TUNE_CALM_MOST);
    }
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
        tune->interval = TUNE_INTERVAL;
        tune->wait = 0;
    } else if (tune->samples < TUNE_PROBE) {
        return false;
    } else if (!up && rate >= tune->before * TUNE_LOSS) {
        tune->calm_wanted = TUNE_CALM;
        tune->wait = tune->interval;
    } else {
        tune_revert(tune, up);
        rate = tune->before;
    }
    tune->probing = false;
    tune->rate = rate;
    return true;
}

static unsigned tune_half(const struct task_tune *tune)
{
    unsigned half = tune->target / 2;
    return half > tune->threads ? half : tune->threads;
}

/* As many as keep the cores busy, if each goes on waiting as much as now. */
static unsigned tune_more(const struct task_tune *tune)
{
    double least = tune->target * 1.5;
    double most = tune->target * 4.0;
    double wish = most;
    if (tune->load > 0) {
        wish = TUNE_WISH * tune->cores * tune->target / tune->load;
    }
    wish = wish < least ? least : wish > most ? most : wish;
    unsigned more = (unsigned)(wish + 0.5);
    return more < tune->most ? more : tune->most;
}

unsigned task_tune_step(struct task_tune *tune,
                        const struct task_sample *sample)
{
    unsigned running = tune->target < tune->cores ? tune->target : tune->cores;
    tune->load =
        tune->fresh ? sample->load : (2 * tune->load + sample->load) / 3;
    tune->fresh = false;
    if (tune->probing) {
        if (!tune_judge(tune, sample)) {
            return tune->target;
        }
    } else {
        double rate = (double)sample->steps / (double)sample->wall_ns;
        tune->rate = tune->rate > 0 ? (2 * tune->rate + rate) / 3 : rate;
    }
    tune->calm =
        tune->load > TUNE_HIGH * (double)tune->target ? tune->calm + 1 : 0;
    if (tune->calm >= tune->calm_wanted && tune->target > tune->threads) {
        tune_probe(tune, tune_half(tune));
    } else if (tune->wait > 0) {
        tune->wait--;
    } else if (tune->downwards) {
        tune->downwards = false;
        tune_probe(tune, tune_half(tune));
    } else if (tune->load < TUNE_LOW * running && !sample->starved &&
               tune->target < tune->most) {
        tune_probe(tune, tune_more(tune));
    }
    return tune->target;
}

/* ---- the thread --------------------------------------------------------- */

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

/* Nanoseconds that a thread ran or, on a machine busy with other things, was
 * ready to. False where the kernel does not count them. */
static bool tune_ready_ns(pid_t thread, uint64_t *ns)
{
    char text[96];
    snprintf(text, sizeof text, "/proc/self/task/%d/schedstat", (int)thread);
    int fd = open(text, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    text[len > 0 ? len : 0] = '\0';
    char *end;
    *ns = strtoull(text, &end, 10);
    *ns += strtoull(end, NULL, 10);
    return *ns > 0;
}

/* The same of all workers in flight, since the last call. */
static uint64_t tune_ready(struct poise_pool *pool)
{
    uint64_t sum = 0;
    unsigned active = __atomic_load_n(&pool->target, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < active; i++) {
        struct poise_worker *worker = &pool->workers[i];
        pid_t thread = __atomic_load_n(&worker->thread_id, __ATOMIC_RELAXED);
        uint64_t now;
        if (thread != 0 && tune_ready_ns(thread, &now)) {
            sum += now - worker->ready_ns;
            worker->ready_ns = now;
        }
    }
    return sum;
}

static unsigned tune_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) {
        return (unsigned)CPU_COUNT(&set);
    }
    return 1;
}

/* `own`: waits of the calling thread that do not count. */
static struct task_sample tune_now(const struct poise_pool *pool, long own)
{
    struct rusage all;
    getrusage(RUSAGE_SELF, &all);
    return (struct task_sample){.wall_ns = poise_clock_ns(),
                                .cpu_ns = poise_clock_cpu_ns(),
                                .steps = tune_steps(pool),
                                .waits = (uint64_t)(all.ru_nvcsw - own)};
}

/* What happened since *last, which becomes now. */
static struct task_sample tune_sample(struct poise_pool *pool,
                                      struct task_sample *last, bool first)
{
    struct rusage own;
    getrusage(RUSAGE_THREAD, &own);
    struct task_sample now = tune_now(pool, own.ru_nvcsw);
    struct task_sample since = {
        .wall_ns = now.wall_ns - last->wall_ns,
        .cpu_ns = now.cpu_ns - last->cpu_ns,
        .steps = now.steps - last->steps,
        .waits = now.waits - last->waits,
        .starved = __atomic_load_n(&pool->busy, __ATOMIC_RELAXED) <
                   (int)__atomic_load_n(&pool->target, __ATOMIC_RELAXED)};
    uint64_t ready = tune_ready(pool);
    if (first || ready == 0) {
        ready = since.cpu_ns;
    }
    since.load = (double)ready / (double)since.wall_ns;
    if (since.waits == 0 && ready > 0) {
        /* The threads that ran never stopped: what is missing went elsewhere,
         * to other machines on the same processor. */
        since.load = __atomic_load_n(&pool->target, __ATOMIC_RELAXED);
    }
    *last = now;
    return since;
}

static void *tune_main(void *arg)
{
    struct poise_pool *pool = arg;
    struct task_tune tune;
    struct task_sample last = pool->tune_last;
    task_tune_init(&tune, pool->threads, pool->worker_count, tune_cores());
    for (bool first = true;; first = false) {
        uint32_t seen = poise_event_seen(&pool->tune_quit);
        if (__atomic_load_n(&pool->tune_over, __ATOMIC_SEQ_CST)) {
            return NULL;
        }
        struct task_sample since = tune_sample(pool, &last, first);
        if (since.wall_ns >= TUNE_SAMPLE_NS / 2) {
            tune_apply(pool, task_tune_step(&tune, &since));
        }
        poise_event_wait(&pool->tune_quit, seen, TUNE_SAMPLE_NS);
    }
}

/* One thread more costs something already where all is in memory: then system
 * calls guard their descriptors, and with --threads=1 they would not. So it
 * starts only once processor time is left over. */
void task_tune_turn(struct poise_pool *pool)
{
    struct task_sample *last = &pool->tune_last;
    if (pool->tuned || pool->worker_count <= pool->threads ||
        poise_clock_ns() - last->wall_ns < TUNE_SAMPLE_NS / 2) {
        return;
    }
    struct task_sample now = tune_now(pool, 0);
    unsigned cores = tune_cores();
    unsigned running = pool->threads < cores ? pool->threads : cores;
    pool->tuned =
        last->wall_ns > 0 && now.waits > last->waits &&
        (double)(now.cpu_ns - last->cpu_ns) <
            TUNE_LOW * running * (double)(now.wall_ns - last->wall_ns);
    if (pool->tuned) {
        /* Without it, and without an error: it only makes things faster. */
        pool->tuning = pthread_create(&pool->tuner, NULL, tune_main, pool) == 0;
    } else {
        *last = now;
    }
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
