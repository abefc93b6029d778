/*
 * For the tests: ranks of a real MPI that wait take naps.
 *
 * Preloaded into a program of an MPI. MPICH looks for messages in a loop while
 * it waits, Open MPI in one that yields the processor: with more ranks than
 * processors, or other tests beside them, most of a test's CPU time goes
 * there, and a rank that has something to do waits for a time slice. Here a
 * thread that has found nothing POLLS times in a row, without doing anything
 * else in between, sleeps before it looks again. What is sent, in which order
 * and to whom stays the same.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Two looks less than this apart: nothing was done in between. */
#define SOON_NS 3000
#define POLLS 200
#define NAP_NS 50000

unsigned ucp_worker_progress(void *worker);

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One look found nothing. Whether it was time for a nap, which is over. */
static int nap(void)
{
    static _Thread_local uint64_t last_ns;
    static _Thread_local unsigned polls;
    const struct timespec length = {.tv_nsec = NAP_NS};
    uint64_t now = clock_ns();
    polls = now - last_ns < SOON_NS ? polls + 1 : 0;
    last_ns = now;
    if (polls < POLLS) {
        return 0;
    }
    int before = errno;
    nanosleep(&length, NULL);
    errno = before;
    last_ns = clock_ns();
    return 1;
}

/* Open MPI's, between two looks. */
int sched_yield(void)
{
    return nap() ? 0 : (int)syscall(SYS_sched_yield);
}

/* MPICH's look, at what UCX brings. */
unsigned ucp_worker_progress(void *worker)
{
    static unsigned (*progress)(void *);
    unsigned (*real)(void *) = __atomic_load_n(&progress, __ATOMIC_RELAXED);
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "ucp_worker_progress");
        if (!real) {
            abort();
        }
        __atomic_store_n(&progress, real, __ATOMIC_RELAXED);
    }
    unsigned done = real(worker);
    if (done == 0) {
        nap();
    }
    return done;
}
