/*
 * Each rank's state, and entering MPI's functions. A state is made when a rank
 * first needs it, which may be one that sends to a rank that has not begun yet:
 * under the job's lock, and shown by a store with release, so that those that
 * find one by a load with acquire need no lock. None is freed before the job
 * has ended.
 */
#include "comm.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SHARED_BUCKETS 64

struct mpi_job {
    struct vrank_mpi **states; /* [V]; those of this process; atomic */
    int count;
    struct mpi_pool *pools; /* [workers] */
    int pool_count;
    struct vrank_spin lock; /* for what follows */
    struct vcomm_shared *shared[SHARED_BUCKETS];
    bool begun;
};

/* A process runs one job at a time, and the functions of MPI take no handle
 * of it. */
static struct mpi_job mpi_job;

bool mpi_checks;

/* ---- all states --------------------------------------------------------- */

static void shared_free(struct vcomm_shared *shared)
{
    if (shared->collective) {
        shared->collective_free(shared->collective);
    }
    free(shared);
}

int mpi_states_begin(bool checks)
{
    if (mpi_job.begun) {
        return poise_error_set(EBUSY, "begin a job of virtual ranks", NULL,
                               "one runs already");
    }
    mpi_job.begun = true;
    mpi_checks = checks;
    return 0;
}

void mpi_states_end(void (*state_free)(struct vrank_mpi *mpi),
                    void (*pool_free)(struct mpi_pool *pool))
{
    for (int i = 0; i < mpi_job.count; i++) {
        if (mpi_job.states[i]) {
            state_free(mpi_job.states[i]);
        }
    }
    for (int i = 0; i < mpi_job.pool_count; i++) {
        pool_free(&mpi_job.pools[i]);
    }
    for (int i = 0; i < SHARED_BUCKETS; i++) {
        while (mpi_job.shared[i]) {
            struct vcomm_shared *shared = mpi_job.shared[i];
            mpi_job.shared[i] = shared->next;
            shared_free(shared);
        }
    }
    free(mpi_job.pools);
    free(mpi_job.states);
    mpi_job = (struct mpi_job){0};
}

/* The tables, whose sizes the engine knows only once it runs. Under the
 * job's lock. */
static bool make_tables(void)
{
    if (mpi_job.states) {
        return true;
    }
    int count = vrank_count(), workers = vrank_workers();
    struct vrank_mpi **states = poise_alloc((size_t)count, sizeof *states);
    size_t bytes = (size_t)workers * sizeof *mpi_job.pools;
    struct mpi_pool *pools = aligned_alloc(64, bytes);
    if (!states || !pools) {
        free(states);
        free(pools);
        return false;
    }
    memset(pools, 0, bytes);
    mpi_job.count = count;
    mpi_job.pools = pools;
    mpi_job.pool_count = workers;
    __atomic_store_n(&mpi_job.states, states, __ATOMIC_RELEASE);
    return true;
}

static struct vrank_mpi *mpi_make(int number)
{
    struct vrank_mpi *mpi = aligned_alloc(64, sizeof *mpi);
    if (!mpi || poise_fault_check(POISE_FAULT_ALLOC)) {
        free(mpi);
        return NULL;
    }
    memset(mpi, 0, sizeof *mpi);
    mpi->number = number;
    mpi->rank = vrank_local(number);
    mpi->pool = &mpi_job.pools[vrank_worker_of(mpi->rank)];
    vrank_mailbox_init(&mpi->box);
    return mpi;
}

static struct vrank_mpi *mpi_at_slow(int number)
{
    struct vrank_mpi *mpi = NULL;
    vrank_spin_lock(&mpi_job.lock);
    if (make_tables()) {
        mpi = mpi_job.states[number];
        if (!mpi) {
            mpi = mpi_make(number);
            __atomic_store_n(&mpi_job.states[number], mpi, __ATOMIC_RELEASE);
        }
    }
    vrank_spin_unlock(&mpi_job.lock);
    if (!mpi) {
        vrank_abort(POISE_VRANK_FAILED,
                    "no memory for the state of virtual rank %d", number);
    }
    return mpi;
}

struct mpi_pool *mpi_pool_of(int worker)
{
    return &mpi_job.pools[worker];
}

static struct vrank_mpi *mpi_made(int number)
{
    struct vrank_mpi **states =
        __atomic_load_n(&mpi_job.states, __ATOMIC_ACQUIRE);
    return states ? __atomic_load_n(&states[number], __ATOMIC_ACQUIRE) : NULL;
}

struct vrank_mpi *mpi_at(int number)
{
    struct vrank_mpi *mpi = mpi_made(number);
    return mpi ? mpi : mpi_at_slow(number);
}

struct vrank_mpi *mpi_if_local(int number)
{
    struct vrank_mpi *mpi = mpi_made(number);
    if (__builtin_expect(mpi != NULL, 1)) {
        return mpi;
    }
    return vrank_is_local(number) ? mpi_at_slow(number) : NULL;
}

/* ---- what members of a communicator share ------------------------------- */

static struct vcomm_shared **shared_place(uint64_t context, int lowest)
{
    uint64_t hash = poise_hash_u64(context ^ (uint64_t)lowest << 52);
    struct vcomm_shared **at = &mpi_job.shared[hash % SHARED_BUCKETS];
    while (*at && ((*at)->context != context || (*at)->lowest != lowest)) {
        at = &(*at)->next;
    }
    return at;
}

struct vcomm_shared *vcomm_shared_join(uint64_t context,
                                       const struct poise_mpi_group *group)
{
    int lowest = group_at(group, 0), members = 0;
    for (int i = 0; i < group->size; i++) {
        int number = group_at(group, i);
        lowest = number < lowest ? number : lowest;
        members += vrank_is_local(number);
    }
    struct vcomm_shared *made = poise_alloc(1, sizeof *made);
    vrank_spin_lock(&mpi_job.lock);
    struct vcomm_shared **at = shared_place(context, lowest);
    struct vcomm_shared *shared = *at;
    if (!shared && made) {
        *made = (struct vcomm_shared){
            .context = context, .lowest = lowest, .members = members};
        *at = shared = made;
        made = NULL;
    }
    if (shared) {
        shared->refs++;
    }
    vrank_spin_unlock(&mpi_job.lock);
    free(made);
    return shared;
}

void vcomm_shared_leave(struct vcomm_shared *shared)
{
    bool last;
    vrank_spin_lock(&mpi_job.lock);
    last = --shared->refs == 0;
    if (last) {
        struct vcomm_shared **at =
            shared_place(shared->context, shared->lowest);
        *at = shared->next;
    }
    vrank_spin_unlock(&mpi_job.lock);
    if (last) {
        shared_free(shared);
    }
}

/* ---- entering ----------------------------------------------------------- */

struct vrank_mpi *mpi_enter_any(const char *call)
{
    struct vrank *rank = vrank_self();
    if (!rank) {
        vrank_abort(POISE_VRANK_FAILED,
                    "%s was called by a thread that the program started: "
                    "virtual ranks have MPI_THREAD_FUNNELED at most, only the "
                    "thread that runs main may call MPI",
                    call);
        /* The job is ending; this thread has no way to go on. */
        pthread_exit(NULL);
    }
    struct vrank_mpi *mpi = vrank_mpi(rank);
    mpi->call = call;
    return mpi;
}

struct vrank_mpi *mpi_enter_slow(const char *call)
{
    const struct vrank *rank = vrank_self();
    const struct vrank_mpi *mpi = rank ? vrank_mpi(rank) : NULL;
    if (rank) {
        vrank_abort(POISE_VRANK_FAILED, "virtual rank %d called %s %s",
                    vrank_number(rank), call,
                    mpi && mpi->phase == RANK_FINALIZED ? "after MPI_Finalize"
                                                        : "before MPI_Init");
    }
    return mpi_enter_any(call);
}
