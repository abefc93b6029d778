/*
 * A run: which rank is where, workers that start and leave, what ends it.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Global: a rank finds its engine from inside any call of MPI, which has no
 * argument for it. One run at a time. */
struct vrank_engine *vrank_engine;

/* ---- where ranks are ----------------------------------------------------- */

struct vrank *vrank_self(void)
{
    const struct vrank_worker *worker = vrank_here;
    if (worker == NULL || worker->running == &worker->engine) {
        return NULL;
    }
    return worker->running;
}

int vrank_number(const struct vrank *rank)
{
    return rank->number;
}

int vrank_count(void)
{
    return vrank_engine != NULL ? vrank_engine->job.count : 0;
}

int vrank_processes(void)
{
    return vrank_engine != NULL ? vrank_engine->job.processes : 0;
}

int vrank_process(void)
{
    return vrank_engine != NULL ? vrank_engine->job.process : 0;
}

int vrank_process_of(int rank)
{
    return vrank_engine->process_of[rank];
}

struct vrank *vrank_local(int rank)
{
    int index = vrank_engine->local_of[rank];
    return index >= 0 ? &vrank_engine->ranks[index] : NULL;
}

bool vrank_is_local(int rank)
{
    return vrank_engine->local_of[rank] >= 0;
}

int vrank_locals(struct vrank *const **ranks)
{
    *ranks = vrank_engine->locals;
    return vrank_engine->local_count;
}

int vrank_ranks_of(int process, int **ranks)
{
    const struct vrank_engine *engine = vrank_engine;
    int count = 0;
    for (int i = 0; i < engine->job.count; i++) {
        count += engine->process_of[i] == process;
    }
    int *all = poise_alloc((size_t)count, sizeof *all);
    if (all == NULL) {
        return -ENOMEM;
    }
    for (int i = 0, at = 0; i < engine->job.count; i++) {
        if (engine->process_of[i] == process) {
            all[at++] = i;
        }
    }
    *ranks = all;
    return count;
}

int vrank_workers(void)
{
    return vrank_engine != NULL ? vrank_engine->job.threads : 0;
}

int vrank_worker_of(const struct vrank *rank)
{
    return rank->worker->number;
}

bool vrank_is_here(const struct vrank *rank)
{
    return rank->worker == vrank_here;
}

bool vrank_communicates(void)
{
    return vrank_here != NULL && vrank_here->number == 0;
}

bool vrank_has_ready(void)
{
    const struct vrank_worker *worker = vrank_here;
    return worker->ready[0].head != NULL || worker->ready[1].head != NULL ||
           sched_inbox_filled(worker);
}

void *vrank_mpi(const struct vrank *rank)
{
    return rank->mpi;
}

void vrank_set_mpi(struct vrank *rank, void *state)
{
    rank->mpi = state;
}

size_t vrank_stack_bytes(void)
{
    return vrank_engine->promised_bytes;
}

bool vrank_is_guard(const struct vrank *rank, const void *address)
{
    const char *at = address, *low = rank->stack;
    size_t guard = vrank_engine->slot_bytes - vrank_engine->stack_bytes;
    return low != NULL && at < low && (size_t)(low - at) <= guard;
}

/* ---- the end ------------------------------------------------------------ */

void engine_wake(struct vrank_worker *worker)
{
    uint32_t was = VRANK_RUNS;
    /* Not twice into the inbox. */
    if (__atomic_compare_exchange_n(&worker->engine.state, &was, VRANK_PERMIT,
                                    false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        sched_inbox_push(worker, &worker->engine);
    }
}

void vrank_wake_communicator(void)
{
    engine_wake(&vrank_engine->workers[0]);
}

void engine_halt(struct vrank_engine *engine)
{
    __atomic_store_n(&engine->halted, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < engine->job.threads; i++) {
        engine_wake(&engine->workers[i]);
    }
}

void vrank_say(const char *line)
{
    const struct vrank_job *job = &vrank_engine->job;
    if (job->say != NULL) {
        job->say(line, job->arg);
    }
}

void vrank_say_once(enum vrank_once what, const char *fmt, ...)
{
    uint32_t bit = UINT32_C(1) << what;
    char line[400];
    va_list args;
    if (vrank_engine == NULL ||
        (__atomic_fetch_or(&vrank_engine->said, bit, __ATOMIC_RELAXED) & bit) !=
            0) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    vrank_say(line);
}

void engine_abort(int status, const char *line)
{
    struct vrank_engine *engine = vrank_engine;
    const struct vrank_job *job = &engine->job;
    if (__atomic_exchange_n(&engine->aborting, 1, __ATOMIC_ACQ_REL) != 0) {
        return;
    }
    if (line != NULL) {
        vrank_say(line);
    }
    engine->aborted = true;
    __atomic_store_n(&engine->status, status, __ATOMIC_RELAXED);
    if (job->ending != NULL) {
        job->ending(status, job->arg);
    }
    if (job->mpi != NULL && job->mpi->end_others != NULL) {
        job->mpi->end_others(status, job->arg);
    }
    if (job->die != NULL) {
        job->die(status, job->arg);
    }
    engine_halt(engine);
}

void vrank_abort(int status, const char *fmt, ...)
{
    struct poise_buf line = {0};
    if (vrank_engine == NULL) {
        return;
    }
    if (fmt != NULL) {
        char text[1024];
        va_list args;
        va_start(args, fmt);
        vsnprintf(text, sizeof text, fmt, args);
        va_end(args);
        poise_buf_puts(&line, text);
    }
    engine_abort(status, fmt != NULL ? poise_buf_str(&line) : NULL);
    poise_buf_free(&line);
    if (vrank_self() != NULL) {
        sched_stop(vrank_here);
    }
}

uint64_t vrank_failure(void)
{
    return __atomic_load_n(&vrank_engine->failure, __ATOMIC_ACQUIRE);
}

void vrank_failed(uint64_t failure)
{
    uint64_t known = vrank_failure();
    while (failure < known && !__atomic_compare_exchange_n(
                                  &vrank_engine->failure, &known, failure, true,
                                  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    }
}

static void engine_rank_end(struct vrank *rank, int status)
{
    const struct vrank_job *job = &vrank_engine->job;
    rank->status = status;
    if (status != 0) {
        vrank_failed((uint64_t)rank->number << 32 | (uint32_t)status);
    }
    if (job->mpi != NULL && job->mpi->rank_end != NULL) {
        job->mpi->rank_end(rank, status, job->arg);
    }
}

/* What of Poise waits for others, called by the program, lets them run. */
static void rank_yield(void *arg)
{
    (void)arg;
    vrank_poll("waits in Poise");
}

void engine_rank_main(struct vrank *rank)
{
    const struct vrank_job *job = &vrank_engine->job;
    poise_ctx_set_yield(rank_yield, NULL);
    if (job->mpi != NULL && job->mpi->rank_start != NULL &&
        job->mpi->rank_start(rank, job->arg) < 0) {
        struct poise_buf line = {0};
        poise_error_format(poise_error_last(), &line);
        engine_abort(POISE_VRANK_FAILED, poise_buf_str(&line));
        poise_buf_free(&line);
        sched_stop(vrank_here);
    }
    engine_rank_end(rank, job->body(rank, job->arg));
}

void vrank_exit(int status)
{
    engine_rank_end(vrank_self(), status);
    sched_leave(vrank_here);
}

int engine_left(const struct vrank_engine *engine)
{
    int left = 0;
    for (int i = 0; i < engine->job.threads; i++) {
        left += engine->workers[i].left;
    }
    return left;
}

bool engine_done(struct vrank_worker *worker)
{
    struct vrank_engine *engine = vrank_engine;
    const struct vrank_job *job = &engine->job;
    if (worker->left > 0) {
        return false;
    }
    if (worker->number != 0) {
        return true;
    }
    return __atomic_load_n(&engine->exited, __ATOMIC_ACQUIRE) ==
               job->threads - 1 &&
           (job->mpi == NULL || job->mpi->finished == NULL ||
            job->mpi->finished(job->arg) == 1);
}

/* ---- workers ------------------------------------------------------------ */

static void engine_worker(struct vrank_worker *worker)
{
    const struct vrank_job *job = &vrank_engine->job;
    worker->errno_at = &errno;
    worker->exceptions_at = &worker->no_exceptions;
    if (job->exceptions != NULL) {
        worker->exceptions_at = job->exceptions();
    }
    if (job->thread_start != NULL) {
        job->thread_start(worker->number, job->arg);
    }
    if (job->cpus != NULL) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET((size_t)job->cpus[worker->number], &cpus);
        pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
    }
    if (job->profile_ops != NULL) {
        job->profile_ops->worker_begin(job->profile, worker->number);
    }
    sched_worker_run(worker);
    if (job->profile_ops != NULL) {
        job->profile_ops->worker_end(job->profile, worker->number,
                                     worker->switches);
    }
}

static void *engine_thread(void *arg)
{
    struct vrank_worker *worker = arg;
    struct vrank_engine *engine = vrank_engine;
    for (;;) {
        uint32_t seen = poise_event_seen(&engine->gate);
        if (__atomic_load_n(&engine->go, __ATOMIC_ACQUIRE) != 0) {
            break;
        }
        poise_event_wait(&engine->gate, seen, UINT64_MAX);
    }
    engine_worker(worker);
    idle_exited();
    __atomic_fetch_add(&engine->exited, 1, __ATOMIC_ACQ_REL);
    engine_wake(&engine->workers[0]);
    return NULL;
}

/* Start all kernel threads but the caller's, or none. */
static int engine_start(struct vrank_engine *engine)
{
    int code = 0, started = 1;
    while (started < engine->job.threads && code == 0) {
        struct vrank_worker *worker = &engine->workers[started];
        code = poise_fault_check(POISE_FAULT_ALLOC);
        if (code == 0) {
            code = pthread_create(&worker->thread, NULL, engine_thread, worker);
        }
        started += code == 0;
    }
    if (code != 0) {
        poise_error_set(code, "start a thread for virtual ranks", NULL, NULL);
        __atomic_store_n(&engine->halted, 1, __ATOMIC_SEQ_CST);
    }
    __atomic_store_n(&engine->go, 1, __ATOMIC_SEQ_CST);
    poise_event_signal(&engine->gate);
    if (code != 0) {
        for (int i = 1; i < started; i++) {
            pthread_join(engine->workers[i].thread, NULL);
        }
    }
    return -code;
}

/* ---- a run -------------------------------------------------------------- */

int vrank_placed(const struct vrank_job *job, int rank)
{
    if (job->placed != NULL) {
        return job->placed[rank];
    }
    if (job->placement == POISE_VRANK_CYCLIC) {
        return rank % job->processes;
    }
    /* The first `more` processes hold one rank more. */
    int each = job->count / job->processes, more = job->count % job->processes;
    int in_more = more * (each + 1);
    return rank < in_more ? rank / (each + 1)
                          : more + (rank - in_more) / (each > 0 ? each : 1);
}

static int engine_place(struct vrank_engine *engine)
{
    const struct vrank_job *job = &engine->job;
    size_t count = (size_t)job->count;
    engine->process_of = poise_alloc(count, sizeof *engine->process_of);
    engine->local_of = poise_alloc(count, sizeof *engine->local_of);
    if (engine->process_of == NULL || engine->local_of == NULL) {
        return -ENOMEM;
    }
    for (int i = 0; i < job->count; i++) {
        int process = vrank_placed(job, i);
        engine->process_of[i] = process;
        engine->local_of[i] =
            process == job->process ? engine->local_count++ : -1;
    }
    return 0;
}

/* Zeroed memory that keeps the alignment of its type. */
static void *engine_alloc(size_t count, size_t size_bytes)
{
    size_t bytes;
    void *memory = NULL;
    if (!__builtin_mul_overflow(count + (count == 0), size_bytes, &bytes) &&
        poise_fault_check(POISE_FAULT_ALLOC) == 0) {
        memory = aligned_alloc(64, bytes);
    }
    if (memory == NULL) {
        poise_error_set(ENOMEM, "run virtual ranks", NULL,
                        "out of memory for %zu objects of %zu bytes", count,
                        size_bytes);
        return NULL;
    }
    return memset(memory, 0, bytes);
}

static int engine_make_workers(struct vrank_engine *engine)
{
    struct vrank_job *job = &engine->job;
    if (job->threads > engine->local_count) {
        job->threads = engine->local_count > 0 ? engine->local_count : 1;
    }
    engine->workers =
        engine_alloc((size_t)job->threads, sizeof *engine->workers);
    if (engine->workers == NULL) {
        return -ENOMEM;
    }
    for (int i = 0; i < job->threads; i++) {
        struct vrank_worker *worker = &engine->workers[i];
        worker->number = i;
        if (job->policy == POISE_VRANK_PRIORITY ||
            job->policy == POISE_VRANK_UNBLOCKED || job->swap != NULL) {
            worker->watch |= VRANK_WATCH_ORDER;
        }
        if (job->profile_ops != NULL) {
            worker->watch |= VRANK_WATCH_PROFILE;
        }
        if (i == 0 && job->processes > 1) {
            worker->watch |= VRANK_WATCH_CLOCK;
        }
        worker->timers =
            poise_alloc((size_t)engine->local_count, sizeof(struct vrank *));
        if (worker->timers == NULL) {
            return -ENOMEM;
        }
    }
    return 0;
}

static int engine_make_ranks(struct vrank_engine *engine)
{
    size_t count = (size_t)engine->local_count;
    engine->ranks = engine_alloc(count, sizeof *engine->ranks);
    engine->locals = poise_alloc(count, sizeof(struct vrank *));
    if (engine->ranks == NULL || engine->locals == NULL) {
        return -ENOMEM;
    }
    int code = engine->local_count > 0 ? stack_create(engine) : 0;
    if (code < 0) {
        return code;
    }
    for (int i = 0; i < engine->local_count; i++) {
        struct vrank *rank = &engine->ranks[i];
        engine->locals[i] = rank;
        rank->ctx = poise_ctx_create();
        if (rank->ctx == NULL) {
            return -ENOMEM;
        }
        rank->stack = stack_low(engine, i);
        rank->stack_bytes = engine->stack_bytes;
        /* Neighbours share a worker. */
        int at = (int)((int64_t)i * engine->job.threads / engine->local_count);
        sched_rank_init(rank, &engine->workers[at], stack_top(engine, i));
    }
    for (int i = 0; i < engine->job.count; i++) {
        if (engine->local_of[i] >= 0) {
            struct vrank *rank = &engine->ranks[engine->local_of[i]];
            rank->number = i;
            rank->is_urgent =
                engine->job.urgent != NULL && engine->job.urgent[i];
        }
    }
    return 0;
}

static void engine_destroy(struct vrank_engine *engine)
{
    for (int i = 0; engine->ranks != NULL && i < engine->local_count; i++) {
        sched_rank_free(&engine->ranks[i]);
    }
    for (int i = 0; engine->workers != NULL && i < engine->job.threads; i++) {
        free(engine->workers[i].timers);
    }
    stack_destroy(engine);
    free(engine->workers);
    free(engine->ranks);
    free(engine->locals);
    free(engine->process_of);
    free(engine->local_of);
    poise_buf_free(&engine->waits);
    free(engine);
}

static int engine_check(const struct vrank_job *job)
{
    if (job->count < 1 || job->processes < 1 || job->process < 0 ||
        job->process >= job->processes || job->threads < 1) {
        return poise_error_set(EINVAL, "run virtual ranks", NULL,
                               "%d ranks in process %d of %d", job->count,
                               job->process, job->processes);
    }
    if (vrank_engine != NULL) {
        return poise_error_set(EBUSY, "run virtual ranks", NULL,
                               "others run already in this process");
    }
    return 0;
}

static void engine_finish(struct vrank_engine *engine,
                          struct vrank_outcome *out)
{
    const struct vrank_job *job = &engine->job;
    for (int i = 1; i < job->threads; i++) {
        pthread_join(engine->workers[i].thread, NULL);
    }
    for (int i = 0; i < engine->local_count; i++) {
        if (job->mpi != NULL && job->mpi->rank_free != NULL) {
            job->mpi->rank_free(&engine->ranks[i], job->arg);
        }
    }
    if (!engine->aborted && vrank_failure() != UINT64_MAX) {
        engine->status = (int)(uint32_t)vrank_failure();
    }
    *out = (struct vrank_outcome){.status = engine->status,
                                  .aborted = engine->aborted,
                                  .deadlock = engine->deadlock};
    for (int i = 0; i < job->threads; i++) {
        out->switches += engine->workers[i].switches;
    }
}

int vrank_run_job(const struct vrank_job *job, struct vrank_outcome *out)
{
    struct vrank_job with_defaults = *job;
    with_defaults.processes += job->processes == 0;
    with_defaults.threads += job->threads == 0;
    with_defaults.serial += job->serial == 0;
    int code = engine_check(&with_defaults);
    if (code < 0) {
        return code;
    }
    struct vrank_engine *engine = poise_alloc(1, sizeof *engine);
    if (engine == NULL) {
        return -ENOMEM;
    }
    engine->job = with_defaults;
    engine->failure = UINT64_MAX;
    vrank_engine = engine;
    code = engine_place(engine);
    if (code == 0) {
        code = engine_make_workers(engine);
    }
    if (code == 0) {
        vrank_concurrent = engine->job.threads > 1;
        code = engine_make_ranks(engine);
    }
    if (code == 0 && job->profile_ops != NULL) {
        code = job->profile_ops->begin(job->profile, &engine->job);
    }
    if (code == 0) {
        code = engine_start(engine);
    }
    if (code == 0) {
        engine_worker(&engine->workers[0]);
        engine_finish(engine, out);
        if (job->profile_ops != NULL) {
            job->profile_ops->end(job->profile);
        }
    }
    engine_destroy(engine);
    vrank_engine = NULL;
    vrank_concurrent = false;
    return code;
}
