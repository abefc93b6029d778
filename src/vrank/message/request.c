/*
 * Requests: where they live, and how they are done. They lie in slabs of their
 * rank, which keeps them for the next one; message.h says what completes them.
 */
#include "message.h"

#include "remote.h"

#include <stdlib.h>

/* ---- where they live ---------------------------------------------------- */

#define SLAB_REQUESTS 16

struct request_slab {
    struct request_slab *next;
    struct poise_mpi_request requests[SLAB_REQUESTS];
};

static bool slab_add(struct vrank_mpi *mpi)
{
    struct request_slab *slab = poise_alloc(1, sizeof *slab);
    if (!slab) {
        return false;
    }
    slab->next = mpi->slabs;
    mpi->slabs = slab;
    for (int i = 0; i < SLAB_REQUESTS; i++) {
        slab->requests[i].mpi = mpi;
        slab->requests[i].spare = true;
        slab->requests[i].next = mpi->spare;
        mpi->spare = &slab->requests[i];
    }
    return true;
}

struct poise_mpi_request *request_get(struct vrank_mpi *mpi)
{
    struct poise_mpi_request *request = mpi->spare;
    if (!request) {
        if (!slab_add(mpi)) {
            return NULL;
        }
        request = mpi->spare;
    }
    mpi->spare = request->next;
    request->spare = false;
    request->counted = false;
    request->type = NULL;
    request->copy = NULL;
    request->state = NULL;
    request->task_free = NULL;
    return request;
}

/* Let go of what it holds. */
static void request_drop(struct poise_mpi_request *request)
{
    if (request->counted) {
        vcomm_release(request->comm);
    }
    if (request->type) {
        type_release(request->type);
    }
    if (request->copy) {
        free(request->copy);
    }
    if (request->task_free) {
        request->task_free(request->state);
    }
}

void request_put(struct poise_mpi_request *request)
{
    struct vrank_mpi *mpi = request->mpi;
    request_drop(request);
    request->spare = true;
    request->next = mpi->spare;
    mpi->spare = request;
}

struct poise_mpi_request *request_scratch(struct vrank_mpi *mpi, size_t count,
                                          size_t size_bytes)
{
    struct poise_mpi_request *request = request_get(mpi);
    if (request) {
        request->copy = poise_alloc(count, size_bytes);
        if (!request->copy) {
            request_put(request);
            return NULL;
        }
    }
    return request;
}

void requests_free(struct vrank_mpi *mpi)
{
    while (mpi->slabs) {
        struct request_slab *slab = mpi->slabs;
        mpi->slabs = slab->next;
        for (int i = 0; i < SLAB_REQUESTS; i++) {
            struct poise_mpi_request *request = &slab->requests[i];
            if (!request->spare) {
                request->counted = false;
                request_drop(request);
            }
        }
        free(slab);
    }
    mpi->spare = NULL;
}

/* ---- being done --------------------------------------------------------- */

void request_finish(struct poise_mpi_request *request)
{
    /* Once `done` is set the owner may give it back, or leave its stack. */
    struct vrank *rank = request->mpi->rank;
    __atomic_store_n(&request->done, 1, __ATOMIC_RELEASE);
    vrank_unpark(rank);
}

static void list_add(struct poise_mpi_request **list,
                     struct poise_mpi_request *request)
{
    request->prev = NULL;
    request->next = *list;
    if (*list) {
        (*list)->prev = request;
    }
    *list = request;
}

static void list_remove(struct poise_mpi_request **list,
                        struct poise_mpi_request *request)
{
    if (request->prev) {
        request->prev->next = request->next;
    } else {
        *list = request->next;
    }
    if (request->next) {
        request->next->prev = request->prev;
    }
}

/* One step of a task; whether it is done. */
static bool task_step(struct poise_mpi_request *request)
{
    int code = request->step(request);
    if (code == 0) {
        return false;
    }
    request->error = code < 0 ? -code : MPI_SUCCESS;
    __atomic_store_n(&request->done, 1, __ATOMIC_RELEASE);
    return true;
}

static void orphans_reap(struct vrank_mpi *mpi)
{
    struct poise_mpi_request *request = mpi->orphans;
    while (request) {
        struct poise_mpi_request *next = request->next;
        if (request_is_done(request)) {
            list_remove(&mpi->orphans, request);
            request_put(request);
        }
        request = next;
    }
}

void requests_advance_all(struct vrank_mpi *mpi)
{
    struct poise_mpi_request *request = mpi->tasks;
    /* Steps may call what waits. */
    if (mpi->advancing) {
        return;
    }
    mpi->advancing = true;
    while (request) {
        struct poise_mpi_request *next = request->next;
        if (task_step(request)) {
            list_remove(&mpi->tasks, request);
            if (request->orphan) {
                request_put(request);
            }
        }
        request = next;
    }
    mpi->advancing = false;
    if (mpi->orphans) {
        orphans_reap(mpi);
    }
}

void request_wait(struct poise_mpi_request *request, const char *why)
{
    struct vrank_mpi *mpi = request->mpi;
    if (request_is_done(request)) {
        return;
    }
    mpi->waiting = request;
    requests_advance(mpi);
    if (!mpi->tasks && !request_is_done(request)) {
        remote_poll(request);
    }
    while (!request_is_done(request)) {
        vrank_park(why);
        requests_advance(mpi);
    }
    mpi->waiting = NULL;
}

int request_task(struct poise_mpi_comm *comm,
                 int (*step)(struct poise_mpi_request *request),
                 void (*task_free)(void *state), void *state, MPI_Request *out)
{
    struct vrank_mpi *mpi = comm->mpi;
    struct poise_mpi_request *request = request_get(mpi);
    if (!request) {
        if (task_free) {
            task_free(state);
        }
        return MPI_ERR_NO_MEM;
    }
    request->done = 0;
    request->kind = REQUEST_TASK;
    request->persistent = request->orphan = request->cancelled = false;
    request->active = true;
    request->comm = comm;
    request->step = step;
    request->task_free = task_free;
    request->state = state;
    request->error = MPI_SUCCESS;
    request->source = MPI_ANY_SOURCE;
    request->received_tag = MPI_ANY_TAG;
    request->received = 0;
    vcomm_hold(comm);
    request->counted = true;
    if (!task_step(request)) {
        list_add(&mpi->tasks, request);
    }
    *out = request;
    return MPI_SUCCESS;
}

int request_prepare(struct poise_mpi_comm *comm,
                    const struct request_task *task, MPI_Request *out)
{
    struct poise_mpi_request *request = request_get(comm->mpi);
    if (!request) {
        task->free(task->state);
        vcomm_release(comm);
        return MPI_ERR_NO_MEM;
    }
    request->kind = REQUEST_TASK;
    request->persistent = true;
    request->active = request->orphan = request->cancelled = false;
    request->done = 1;
    request->comm = comm;
    request->counted = true;
    request->start = task->start;
    request->step = task->step;
    request->task_free = task->free;
    request->state = task->state;
    request->error = MPI_SUCCESS;
    request->source = MPI_ANY_SOURCE;
    request->received_tag = MPI_ANY_TAG;
    request->received = 0;
    *out = request;
    return MPI_SUCCESS;
}

int request_restart(struct poise_mpi_request *request)
{
    int code = request->start(request);
    if (code == MPI_SUCCESS) {
        request->done = 0;
        request->error = MPI_SUCCESS;
        if (!task_step(request)) {
            list_add(&request->mpi->tasks, request);
        }
    }
    return code;
}

void request_orphan(struct poise_mpi_request *request)
{
    request->orphan = true;
    if (request->kind != REQUEST_TASK) {
        list_add(&request->mpi->orphans, request);
    }
}

void requests_settle(struct vrank_mpi *mpi, const char *why)
{
    requests_advance(mpi);
    while (mpi->tasks || mpi->orphans) {
        vrank_park(why);
        requests_advance(mpi);
    }
}
