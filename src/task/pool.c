/*
 * The pool: made, filled, run, taken apart; and how a run ends.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POOL_QUEUE_BYTES ((size_t)8 << 20)
#define POOL_CHECKPOINT_NS UINT64_C(30000000000)
#define POOL_PROGRESS_NS UINT64_C(100000000)
/** How often the communicator looks around: with other ranks, without. */
#define POOL_TURN_NS UINT64_C(100000)
#define POOL_TURN_SPREAD 10
#define POOL_TURN_ALONE_NS UINT64_C(5000000)
#define POOL_WORKERS_MOST 256

const char *const poise_policy_names[] = {
    "central", "central-keep-one", "random", "near", "hybrid", NULL};
const char *const poise_split_names[] = {"random", "half", NULL};

/* ---- how it ends -------------------------------------------------------- */

void task_set_state(struct poise_pool *pool, enum task_state state)
{
    enum task_state running = TASK_RUNNING;
    __atomic_compare_exchange_n(&pool->state, &running, state, false,
                                __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
    task_signal(pool);
    poise_event_signal(&pool->unpark);
}

static char *pool_copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

void task_stop(struct poise_pool *pool, int code)
{
    pthread_mutex_lock(&pool->end_lock);
    struct task_end *end = &pool->end;
    if (!end->set) {
        end->set = true;
        end->code = code;
        const struct poise_error *error = poise_error_last();
        if (code < 0 && error->code == -code) {
            end->doing = pool_copy(error->doing);
            end->what = pool_copy(error->what);
            end->why = pool_copy(error->why);
        }
    }
    pthread_mutex_unlock(&pool->end_lock);
    task_set_state(pool, TASK_HALTED);
}

/* The code of the run, its error in the caller's context. */
static int pool_result(struct poise_pool *pool)
{
    const struct task_end *end = &pool->end;
    if (end->code >= 0) {
        return end->code;
    }
    return poise_error_set(-end->code, end->doing ? end->doing : "run tasks",
                           end->what, end->why ? "%s" : NULL, end->why);
}

/* ---- making ------------------------------------------------------------- */

static int pool_copy_options(struct poise_pool *pool,
                             const struct poise_pool_options *given)
{
    struct poise_pool_options *options = &pool->options;
    *options = *given;
    options->spill_dir = pool_copy(given->spill_dir);
    options->checkpoint = pool_copy(given->checkpoint);
    options->resume = pool_copy(given->resume);
    options->job = NULL;
    if (given->job_bytes > 0) {
        void *job = poise_alloc(given->job_bytes, 1);
        if (!job) {
            return -ENOMEM;
        }
        memcpy(job, given->job, given->job_bytes);
        options->job = job;
    }
    if ((given->spill_dir && !options->spill_dir) ||
        (given->checkpoint && !options->checkpoint) ||
        (given->resume && !options->resume)) {
        return poise_error_set(ENOMEM, "create a task pool", NULL, NULL);
    }
    options->batch = options->batch ? options->batch : 1;
    options->queue_bytes =
        options->queue_bytes ? options->queue_bytes : POOL_QUEUE_BYTES;
    options->checkpoint_ns =
        options->checkpoint_ns ? options->checkpoint_ns : POOL_CHECKPOINT_NS;
    if (options->seed == 0) {
        options->seed = poise_rng_next(poise_rng_current());
    }
    return 0;
}

/* How many workers there are, and which of them is the caller's thread. */
static void pool_lay_out(struct poise_pool *pool)
{
    const struct poise_pool_options *options = &pool->options;
    unsigned threads = options->threads ? options->threads : 1;
    unsigned most = options->threads_max;
    if (pool->size > 1 && options->policy != POISE_POLICY_HYBRID) {
        threads = 1;
    }
    if (pool->size > 1 && options->policy <= POISE_POLICY_CENTRAL_KEEP) {
        most = 1;
    }
    if (pool->world && !poise_world_threads_allowed(pool->world)) {
        threads = most = 1;
    }
    threads = threads < POOL_WORKERS_MOST ? threads : POOL_WORKERS_MOST;
    most = most < POOL_WORKERS_MOST ? most : POOL_WORKERS_MOST;
    pool->threads = threads;
    pool->target = pool->target_most = threads;
    pool->worker_count = most > threads ? most : threads;
    pool->dedicated = pool->size > 1 && threads > 1;
}

static int pool_make_workers(struct poise_pool *pool)
{
    size_t count = pool->worker_count + pool->dedicated;
    size_t bytes = count * sizeof *pool->workers;
    int code = poise_fault_check(POISE_FAULT_ALLOC);
    pool->workers =
        code ? NULL : aligned_alloc(_Alignof(struct poise_worker), bytes);
    if (!pool->workers) {
        return poise_error_set(ENOMEM, "create a task pool", NULL, NULL);
    }
    memset(pool->workers, 0, bytes);
    for (unsigned i = 0; i < count; i++) {
        struct poise_worker *worker = &pool->workers[i];
        worker->pool = pool;
        worker->index = i;
        worker->parked = true;
        pthread_mutex_init(&worker->lock, NULL);
        poise_rng_seed(&worker->rng,
                       poise_hash_u64(pool->options.seed + i +
                                      ((uint64_t)pool->rank << 32)));
    }
    pool->comm = &pool->workers[pool->dedicated ? count - 1 : 0];
    pool->comm->communicates = true;
    return 0;
}

/* What the ranks need of one another. Collective. */
static int pool_join_world(struct poise_pool *pool, int code)
{
    if (pool->size == 1) {
        return code;
    }
    struct poise_buf bytes = {0};
    if (pool->rank == 0) {
        poise_buf_u64(&bytes, poise_rng_next(poise_rng_current()));
        poise_buf_u64(&bytes, pool->hooks.progress != NULL);
    }
    code = poise_world_agree(pool->world, code < 0 ? code : bytes.error);
    if (code == 0) {
        code = poise_world_broadcast(pool->world, 0, &bytes);
    }
    struct poise_reader reader = poise_reader_of(bytes.data, bytes.len);
    pool->net.generation = (uint32_t)poise_reader_u64(&reader);
    pool->net.progress.shared = poise_reader_u64(&reader) != 0;
    poise_buf_free(&bytes);
    return code;
}

static void pool_init_locks(struct poise_pool *pool)
{
    pthread_mutex_init(&pool->inbox_lock, NULL);
    pthread_mutex_init(&pool->end_lock, NULL);
    pthread_mutex_init(&pool->deliver_lock, NULL);
    task_spill_init(pool);
}

int poise_pool_create(struct poise_world *world,
                      const struct poise_pool_options *options,
                      const struct poise_pool_hooks *hooks,
                      struct poise_pool **out)
{
    static const struct poise_pool_options none = {
        .policy = POISE_POLICY_HYBRID, .split = POISE_SPLIT_HALF};
    struct poise_pool *pool = poise_alloc(1, sizeof *pool);
    if (!pool) {
        return -ENOMEM;
    }
    pool->world = world;
    pool->size = world ? poise_world_size(world) : 1;
    pool->rank = world ? poise_world_rank(world) : 0;
    pool->hooks = *hooks;
    pool_init_locks(pool);
    int code = pool_copy_options(pool, options ? options : &none);
    if (code == 0) {
        pool_lay_out(pool);
        code = pool_make_workers(pool);
    }
    if (code == 0) {
        code = task_stats_init(pool);
    }
    if (code == 0 && pool->size > 1) {
        code = task_net_init(pool);
    }
    code = pool_join_world(pool, code);
    if (code < 0) {
        poise_pool_destroy(pool);
        return code;
    }
    *out = pool;
    return 0;
}

void poise_pool_destroy(struct poise_pool *pool)
{
    if (!pool) {
        return;
    }
    unsigned all = pool->workers ? pool->worker_count + pool->dedicated : 0;
    for (unsigned i = 0; i < all; i++) {
        struct poise_worker *worker = &pool->workers[i];
        task_deque_drop(pool, &worker->queue);
        task_deque_drop(pool, &worker->added);
        task_deque_free(&worker->sends);
        poise_buf_free(&worker->task);
        poise_buf_free(&worker->running.rest);
        pthread_mutex_destroy(&worker->lock);
    }
    if (pool->size > 1 && pool->stats.workers) {
        task_net_free(pool);
    }
    /* One rank alone unpacks too: the tasks of a checkpoint. */
    poise_buf_free(&pool->net.scratch);
    free(pool->workers);
    task_part_free(&pool->snapshot.part);
    free(pool->snapshot.written);
    task_deque_free(&pool->inbox);
    task_spill_free(pool);
    pthread_mutex_destroy(&pool->inbox_lock);
    pthread_mutex_destroy(&pool->end_lock);
    pthread_mutex_destroy(&pool->deliver_lock);
    free(pool->end.doing);
    free(pool->end.what);
    free(pool->end.why);
    free((char *)pool->options.spill_dir);
    free((char *)pool->options.checkpoint);
    free((char *)pool->options.resume);
    free((void *)pool->options.job);
    free(pool->stats.messages);
    free(pool->stats.bytes);
    free(pool->stats.workers);
    free(pool);
}

unsigned poise_pool_workers(const struct poise_pool *pool)
{
    return pool->worker_count;
}

uint64_t poise_pool_epoch(const struct poise_pool *pool)
{
    return pool->epoch;
}

int poise_pool_add(struct poise_pool *pool, const void *task, size_t len)
{
    struct poise_worker *first = pool->comm;
    pthread_mutex_lock(&first->lock);
    int code = task_deque_push(&first->queue, task, len, 0);
    if (code == 0) {
        code = task_spill_check(first);
    }
    task_queue_publish(first);
    pthread_mutex_unlock(&first->lock);
    return code;
}

/* ---- running ------------------------------------------------------------ */

void task_turn(struct poise_pool *pool)
{
    uint64_t now = poise_clock_ticks();
    if (pool->size > 1) {
        task_net_turn(pool);
    } else if (task_state(pool) == TASK_RUNNING) {
        if (task_interrupted(pool)) {
            task_halt(pool, true);
        }
        task_checkpoint_turn(pool);
    }
    task_tune_turn(pool);
    task_progress_turn(pool, now);
    uint64_t end = poise_clock_ticks();
    task_count(&pool->comm->comm_ticks, end - now);
    /* Where a look is dear (with more ranks than processors MPI gives its own
     * away in it) it is taken less often, so that it costs an eighth at most;
     * but not so seldom that others would wait for answers. */
    uint64_t pause = (end - now) * 8;
    uint64_t most = pool->turn_ticks * POOL_TURN_SPREAD;
    pause = pause < most ? pause : most;
    pool->next_turn =
        end + (pause > pool->turn_ticks ? pause : pool->turn_ticks);
}

/* Start the threads of the first `pool->threads` workers. Fewer than asked for
 * will do, as long as there is one. */
static int pool_start(struct poise_pool *pool)
{
    int code = 0;
    bool works = !pool->dedicated && !pool->master;
    /* The caller's thread counts already, so that nobody sees an end. */
    __atomic_store_n(&pool->busy, 1, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; code == 0 && i < pool->threads; i++) {
        if (!pool->workers[i].communicates) {
            code = task_worker_start(&pool->workers[i]);
        }
    }
    if (!works) {
        __atomic_sub_fetch(&pool->busy, 1, __ATOMIC_SEQ_CST);
    }
    if (code < 0 && pool->dedicated && !pool->workers[0].started) {
        return poise_error_set(-code, "start a thread", NULL, NULL);
    }
    return 0;
}

static void pool_join(struct poise_pool *pool)
{
    for (unsigned i = 0; i < pool->worker_count; i++) {
        if (pool->workers[i].started) {
            pthread_join(pool->workers[i].thread, NULL);
            pool->workers[i].started = false;
        }
    }
}

static void pool_begin(struct poise_pool *pool)
{
    pool->turn_ticks = poise_clock_ns_to_ticks(
        pool->size > 1 ? POOL_TURN_NS : POOL_TURN_ALONE_NS);
    pool->progress_ticks = poise_clock_ns_to_ticks(
        pool->options.progress_ns ? pool->options.progress_ns
                                  : POOL_PROGRESS_NS);
    pool->start_ticks = poise_clock_ticks();
    pool->next_turn = pool->start_ticks + pool->turn_ticks;
    pool->next_progress = pool->start_ticks + pool->progress_ticks;
}

/* From the first task to the last. */
static void pool_work(struct poise_pool *pool)
{
    int code = pool_start(pool);
    if (code < 0) {
        task_stop(pool, code);
    }
    task_tune_turn(pool);
    if (!pool->dedicated && !pool->master) {
        task_worker_loop(pool->comm);
    }
    if (pool->size > 1) {
        task_comm_loop(pool);
    }
    task_tune_end(pool);
    pool_join(pool);
}

static int pool_run(struct poise_pool *pool)
{
    int code = task_resume(pool);
    if (code == 0) {
        code = task_checkpoint_begin(pool);
        code = pool->size > 1 ? poise_world_agree(pool->world, code) : code;
    }
    if (code < 0) {
        return code;
    }
    pool_begin(pool);
    pool_work(pool);
    task_stats_refresh(pool);
    pool->stats.wall_ns =
        poise_clock_ticks_to_ns(poise_clock_ticks() - pool->start_ticks);
    code = pool->size > 1 ? task_end_agree(pool) : pool_result(pool);
    task_checkpoint_end(pool);
    return code;
}

int poise_pool_run(struct poise_pool *pool)
{
    const struct poise_pool_options *options = &pool->options;
    struct poise_checkpoint_lock *lock = NULL;
    if (pool->ran) {
        return poise_error_set(EINVAL, "run a task pool", NULL,
                               "it ran already");
    }
    pool->ran = true;
    if (!options->lock && (options->checkpoint || options->resume)) {
        int code = poise_pool_checkpoint_lock(pool->world, options->checkpoint,
                                              options->resume, &lock);
        if (code < 0) {
            return code;
        }
    }
    int code = pool_run(pool);
    poise_pool_checkpoint_unlock(lock);
    return code;
}
