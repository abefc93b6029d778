/*
 * Ranks that do nothing but record: processes that write the files of a job of
 * SIZE ranks as the preload would. Each waits PERIOD ms, rank LATE then for the
 * others and LATENESS ms more, if any, so that it is the last one however slow
 * the machine is; then all meet in a barrier, CALLS times. They take no
 * processor while they wait, and no MPI. With BUSY rank LATE computes instead
 * of waiting.
 *
 * usage: ranks SIZE CALLS PERIOD_MS LATE LATENESS_MS [BUSY]
 *        POISE_TRACE   the file of rank 0
 *        RANKS_PRINT   print the processes
 *        RANKS_UNTIL   more calls until this file is there
 *        RANKS_STOP    in this call rank LATE stops itself, the others waiting
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <poise/trace.h>

enum { SIZE_MOST = 64 };

struct job {
    int size, calls, late;
    long period_ms, lateness_ms;
    bool is_busy;
    uint64_t session;
    const char *until; /* a file; NULL: only so many calls */
    int stop;          /* in this call; 0: in none */
    struct meeting *meeting;
};

/* Shared by all ranks. */
struct meeting {
    pthread_barrier_t barrier;
    int come;  /* atomic: ranks that have entered, in all calls */
    int calls; /* atomic: as many are made */
};

static void spend_ms(long ms, bool is_busy)
{
    uint64_t until = poise_clock_ns() + (uint64_t)ms * 1000000;
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000};
    if (!is_busy) {
        nanosleep(&wait, NULL);
    }
    while (is_busy && poise_clock_ns() < until) {
    }
}

/* What rank LATE does between two calls besides the others' waiting. */
static void be_late(const struct job *job, int call)
{
    struct meeting *meeting = job->meeting;
    bool is_stopped = call == job->stop;
    bool is_last = call >= job->calls && job->until;
    if (is_stopped || is_last || (job->lateness_ms > 0 && !job->is_busy)) {
        while (__atomic_load_n(&meeting->come, __ATOMIC_ACQUIRE) <
               (job->size - 1) * call) {
            spend_ms(1, false);
        }
    }
    spend_ms(job->lateness_ms, job->is_busy);
    if (is_stopped) {
        raise(SIGSTOP);
    }
    if (is_last && access(job->until, F_OK) != 0) {
        __atomic_store_n(&meeting->calls, call + 1, __ATOMIC_RELEASE);
    }
}

static void barrier(const struct job *job, int rank)
{
    if (rank != job->late) {
        __atomic_add_fetch(&job->meeting->come, 1, __ATOMIC_ACQ_REL);
    }
    pthread_barrier_wait(&job->meeting->barrier);
}

static int run(const struct job *job, const char *base, int rank)
{
    char path[4096];
    const char *paused = getenv("POISE_TRACE_PAUSED");
    struct poise_trace *trace;
    struct poise_trace_options options = {.session = {job->session, 1},
                                          .rank = rank,
                                          .size = job->size,
                                          .paused = paused &&
                                                    strcmp(paused, "1") == 0};
    struct poise_trace_place place = {.type = POISE_TRACE_CALL,
                                      .rank = rank,
                                      .peer = -1,
                                      .group = 1,
                                      .size = (uint32_t)job->size,
                                      .name = "MPI_Allreduce",
                                      .group_name = "MPI_COMM_WORLD"};
    snprintf(path, sizeof path, rank ? "%s.%d" : "%s", base, rank);
    if (poise_trace_create(path, &options, &trace) < 0) {
        return 1;
    }
    poise_trace_use(trace);
    uint32_t call = poise_trace_collector(trace, &place);
    const int *calls = &job->meeting->calls;
    for (int i = 1; i <= __atomic_load_n(calls, __ATOMIC_ACQUIRE); i++) {
        bool is_late = rank == job->late;
        spend_ms(job->period_ms, is_late && job->is_busy);
        if (is_late) {
            be_late(job, i);
        }
        uint64_t enter = poise_clock_ticks();
        barrier(job, rank);
        poise_trace_put(poise_trace_ring(), call, (uint64_t)i, enter,
                        poise_clock_ticks(), 8, 0);
    }
    poise_trace_destroy(trace);
    return 0;
}

int main(int argc, char **argv)
{
    const char *base = getenv("POISE_TRACE");
    pthread_barrierattr_t shared;
    struct job job = {.session = (uint64_t)getpid(), .is_busy = argc > 6};
    job.size = argc > 5 ? atoi(argv[1]) : 0;
    if (!base || job.size < 1 || job.size > SIZE_MOST) {
        return 2;
    }
    job.calls = atoi(argv[2]);
    job.period_ms = atol(argv[3]);
    job.late = atoi(argv[4]);
    job.lateness_ms = atol(argv[5]);
    job.until = getenv("RANKS_UNTIL");
    job.stop = getenv("RANKS_STOP") ? atoi(getenv("RANKS_STOP")) : 0;
    job.meeting = mmap(NULL, sizeof *job.meeting, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job.meeting == MAP_FAILED || pthread_barrierattr_init(&shared) != 0 ||
        pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) != 0 ||
        pthread_barrier_init(&job.meeting->barrier, &shared,
                             (unsigned)job.size) != 0) {
        return 1;
    }
    job.meeting->calls = job.calls;
    for (int i = 0; i < job.size; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            _exit(run(&job, base, i));
        }
        if (getenv("RANKS_PRINT")) {
            printf("%d\n", (int)pid);
        }
    }
    fflush(stdout);
    int bad = 0, status;
    while (wait(&status) > 0) {
        bad |= status;
    }
    return bad != 0;
}
