/*
 * Requests: where they live, how they are done, and the functions of MPI that
 * complete them.
 */
#include "vrank/mpi/entry.h"

#include "wire.h"

#include <stdlib.h>

/* ---- where they live ---------------------------------------------------- */

#define SLAB_REQUESTS 16

struct face_slab {
    struct face_slab *next;
    struct poise_mpi_request requests[SLAB_REQUESTS];
};

static bool slab_add(struct vrank_face *face)
{
    struct face_slab *slab = poise_alloc(1, sizeof *slab);
    if (!slab) {
        return false;
    }
    slab->next = face->slabs;
    face->slabs = slab;
    for (int i = 0; i < SLAB_REQUESTS; i++) {
        slab->requests[i].face = face;
        slab->requests[i].spare = true;
        slab->requests[i].next = face->spare;
        face->spare = &slab->requests[i];
    }
    return true;
}

struct poise_mpi_request *request_get(struct vrank_face *face)
{
    struct poise_mpi_request *request = face->spare;
    if (!request) {
        if (!slab_add(face)) {
            return NULL;
        }
        request = face->spare;
    }
    face->spare = request->next;
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
    struct vrank_face *face = request->face;
    request_drop(request);
    request->spare = true;
    request->next = face->spare;
    face->spare = request;
}

struct poise_mpi_request *request_scratch(struct vrank_face *face, size_t count,
                                          size_t size_bytes)
{
    struct poise_mpi_request *request = request_get(face);
    if (request) {
        request->copy = poise_alloc(count, size_bytes);
        if (!request->copy) {
            request_put(request);
            return NULL;
        }
    }
    return request;
}

void requests_free(struct vrank_face *face)
{
    while (face->slabs) {
        struct face_slab *slab = face->slabs;
        face->slabs = slab->next;
        for (int i = 0; i < SLAB_REQUESTS; i++) {
            struct poise_mpi_request *request = &slab->requests[i];
            if (!request->spare) {
                request->counted = false;
                request_drop(request);
            }
        }
        free(slab);
    }
    face->spare = NULL;
}

/* ---- being done --------------------------------------------------------- */

void request_finish(struct poise_mpi_request *request)
{
    /* Once it is done it may be gone. */
    struct vrank *rank = request->face->rank;
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

static void orphans_reap(struct vrank_face *face)
{
    struct poise_mpi_request *request = face->orphans;
    while (request) {
        struct poise_mpi_request *next = request->next;
        if (request_is_done(request)) {
            list_remove(&face->orphans, request);
            request_put(request);
        }
        request = next;
    }
}

void face_advance(struct vrank_face *face)
{
    struct poise_mpi_request *request = face->tasks;
    /* Steps may call what waits. */
    if (face->advancing) {
        return;
    }
    face->advancing = true;
    while (request) {
        struct poise_mpi_request *next = request->next;
        if (task_step(request)) {
            list_remove(&face->tasks, request);
            if (request->orphan) {
                request_put(request);
            }
        }
        request = next;
    }
    face->advancing = false;
    if (face->orphans) {
        orphans_reap(face);
    }
}

static inline void advance(struct vrank_face *face)
{
    if (face->tasks || face->orphans) {
        face_advance(face);
    }
}

void request_wait(struct poise_mpi_request *request, const char *why)
{
    struct vrank_face *face = request->face;
    if (request_is_done(request)) {
        return;
    }
    face->waiting = request;
    advance(face);
    if (!face->tasks && !request_is_done(request)) {
        wire_linger(request);
    }
    while (!request_is_done(request)) {
        vrank_park(why);
        advance(face);
    }
    face->waiting = NULL;
}

int request_task(struct poise_mpi_comm *comm,
                 int (*step)(struct poise_mpi_request *request),
                 void (*task_free)(void *state), void *state, MPI_Request *out)
{
    struct vrank_face *face = comm->face;
    struct poise_mpi_request *request = request_get(face);
    if (!request) {
        if (task_free) {
            task_free(state);
        }
        return MPI_ERR_NO_MEM;
    }
    request->done = 0;
    request->kind = FACE_TASK;
    request->persistent = request->orphan = request->cancelled = false;
    request->active = true;
    request->comm = comm;
    request->step = step;
    request->task_free = task_free;
    request->state = state;
    request->error = MPI_SUCCESS;
    request->source = MPI_ANY_SOURCE;
    request->got_tag = MPI_ANY_TAG;
    request->got = 0;
    vcomm_hold(comm);
    request->counted = true;
    if (!task_step(request)) {
        list_add(&face->tasks, request);
    }
    *out = request;
    return MPI_SUCCESS;
}

void request_orphan(struct poise_mpi_request *request)
{
    request->orphan = true;
    if (request->kind != FACE_TASK) {
        list_add(&request->face->orphans, request);
    }
}

void face_settle(struct vrank_face *face, const char *why)
{
    advance(face);
    while (face->tasks || face->orphans) {
        vrank_park(why);
        advance(face);
    }
}

/* ---- what the user is told ---------------------------------------------- */

void status_set(MPI_Status *status, int source, int tag, size_t bytes)
{
    status->MPI_SOURCE = source;
    status->MPI_TAG = tag;
    status->poise_cancelled = 0;
    status->poise_bytes = (MPI_Count)bytes;
}

void status_empty(MPI_Status *status)
{
    status_set(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
    status->MPI_ERROR = MPI_SUCCESS;
}

static void status_of(const struct poise_mpi_request *request,
                      MPI_Status *status)
{
    if (!status) {
        return;
    }
    if (request->kind == FACE_SEND) {
        status_set(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
    } else {
        status_set(status, request->source, request->got_tag, request->got);
    }
    status->poise_cancelled = request->cancelled;
}

/* Remember whose error handler is to be called: the request, and with it the
 * communicator, may be gone by then. */
static void blame(struct vrank_face *face, struct poise_mpi_comm *comm)
{
    if (!face->blamed && comm) {
        vcomm_hold(comm);
        face->blamed = comm;
    }
}

/* Tell about a request that is done; afterwards it is inactive or gone. */
static int conclude(MPI_Request *handle, MPI_Status *status)
{
    struct poise_mpi_request *request = *handle;
    int code = request->error;
    status_of(request, status);
    if (code != MPI_SUCCESS) {
        blame(request->face, request->comm);
    }
    if (request->persistent) {
        request->active = false;
        return code;
    }
    request_put(request);
    *handle = MPI_REQUEST_NULL;
    return code;
}

static bool is_active(const struct poise_mpi_request *request)
{
    return request && request->active;
}

int request_complete(MPI_Request *request, const char *why, MPI_Status *status)
{
    request_wait(*request, why);
    return conclude(request, status);
}

/* Whether it can be told; makes progress if not. */
static bool look(struct vrank_face *face, struct poise_mpi_request *request)
{
    if (!request_is_done(request)) {
        advance(face);
    }
    return request_is_done(request);
}

/* ---- one ---------------------------------------------------------------- */

/* Call the error handler of the communicator that is to blame. */
static int fail(struct vrank_face *face, int code)
{
    if (code == MPI_SUCCESS) {
        return code;
    }
    struct poise_mpi_comm *comm = face->blamed;
    face->blamed = NULL;
    code = face_fail(face, comm, code, NULL);
    if (comm) {
        vcomm_release(comm);
    }
    return code;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    struct vrank_face *face = face_enter("MPI_Wait");
    if (!request) {
        return face_fail(face, NULL, MPI_ERR_REQUEST, NULL);
    }
    if (!is_active(*request)) {
        if (status) {
            status_empty(status);
        }
        return MPI_SUCCESS;
    }
    return fail(face, request_complete(request, "MPI_Wait", status));
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    struct vrank_face *face = face_enter("MPI_Test");
    if (!request || !flag) {
        return face_fail(face, NULL, MPI_ERR_ARG, NULL);
    }
    *flag = 1;
    if (!is_active(*request)) {
        if (status) {
            status_empty(status);
        }
        return MPI_SUCCESS;
    }
    if (!look(face, *request)) {
        vrank_poll("MPI_Test");
        if (!look(face, *request)) {
            *flag = 0;
            return MPI_SUCCESS;
        }
    }
    vrank_polled();
    return fail(face, conclude(request, status));
}

int MPI_Request_free(MPI_Request *request)
{
    struct vrank_face *face = face_enter("MPI_Request_free");
    if (!request || !*request) {
        return face_fail(face, NULL, MPI_ERR_REQUEST, NULL);
    }
    struct poise_mpi_request *here = *request;
    if (here->active && !request_is_done(here)) {
        request_orphan(here);
    } else {
        request_put(here);
    }
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}

int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
    struct vrank_face *face = face_enter("MPI_Request_get_status");
    if (!flag) {
        return face_fail(face, NULL, MPI_ERR_ARG, NULL);
    }
    if (!is_active(request)) {
        *flag = 1;
        if (status) {
            status_empty(status);
        }
        return MPI_SUCCESS;
    }
    *flag = look(face, request);
    if (*flag) {
        vrank_polled();
        status_of(request, status);
    } else {
        vrank_poll("MPI_Request_get_status");
    }
    return MPI_SUCCESS;
}

int MPI_Cancel(MPI_Request *request)
{
    struct vrank_face *face = face_enter("MPI_Cancel");
    if (!request || !*request) {
        return face_fail(face, NULL, MPI_ERR_REQUEST, NULL);
    }
    if ((*request)->active) {
        p2p_cancel(*request);
    }
    return MPI_SUCCESS;
}

int MPI_Test_cancelled(const MPI_Status *status, int *flag)
{
    struct vrank_face *face = face_enter("MPI_Test_cancelled");
    if (!status || !flag) {
        return face_fail(face, NULL, MPI_ERR_ARG, NULL);
    }
    *flag = status->poise_cancelled;
    return MPI_SUCCESS;
}

int MPI_Status_set_cancelled(MPI_Status *status, int flag)
{
    struct vrank_face *face = face_enter("MPI_Status_set_cancelled");
    if (!status) {
        return face_fail(face, NULL, MPI_ERR_ARG, NULL);
    }
    status->poise_cancelled = flag != 0;
    return MPI_SUCCESS;
}

/* ---- many --------------------------------------------------------------- */

static int check_many(struct vrank_face *face, int count,
                      const MPI_Request *requests)
{
    if (count < 0) {
        return face_fail(face, NULL, MPI_ERR_COUNT, NULL);
    }
    if (count > 0 && !requests) {
        return face_fail(face, NULL, MPI_ERR_REQUEST, NULL);
    }
    return MPI_SUCCESS;
}

/* Conclude all of `count` requests that are done, or inactive. */
static int conclude_all(struct vrank_face *face, int count,
                        MPI_Request *requests, MPI_Status *statuses)
{
    int result = MPI_SUCCESS;
    for (int i = 0; i < count; i++) {
        MPI_Status *status = statuses ? &statuses[i] : NULL;
        int code = MPI_SUCCESS;
        if (is_active(requests[i])) {
            code = conclude(&requests[i], status);
            if (code != MPI_SUCCESS && result == MPI_SUCCESS) {
                result = MPI_ERR_IN_STATUS;
                /* Those before went well. */
                for (int j = 0; statuses && j < i; j++) {
                    statuses[j].MPI_ERROR = MPI_SUCCESS;
                }
            }
        } else if (status) {
            status_empty(status);
        }
        if (status && result != MPI_SUCCESS) {
            status->MPI_ERROR = code;
        }
    }
    return fail(face, result);
}

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
    struct vrank_face *face = face_enter("MPI_Waitall");
    int code = check_many(face, count, requests);
    if (code != MPI_SUCCESS) {
        return code;
    }
    for (int i = 0; i < count; i++) {
        if (is_active(requests[i])) {
            request_wait(requests[i], "MPI_Waitall");
        }
    }
    return conclude_all(face, count, requests, statuses);
}

static bool all_done(struct vrank_face *face, int count, MPI_Request *requests)
{
    for (int i = 0; i < count; i++) {
        if (is_active(requests[i]) && !look(face, requests[i])) {
            return false;
        }
    }
    return true;
}

int MPI_Testall(int count, MPI_Request *requests, int *flag,
                MPI_Status *statuses)
{
    struct vrank_face *face = face_enter("MPI_Testall");
    int code = check_many(face, count, requests);
    if (code != MPI_SUCCESS) {
        return code;
    }
    *flag = all_done(face, count, requests);
    if (!*flag) {
        vrank_poll("MPI_Testall");
        *flag = all_done(face, count, requests);
    }
    if (!*flag) {
        return MPI_SUCCESS;
    }
    vrank_polled();
    return conclude_all(face, count, requests, statuses);
}

/* The first that is done; -1 if none is, MPI_UNDEFINED if none is active. */
static int find_done(int count, const MPI_Request *requests)
{
    int found = MPI_UNDEFINED;
    for (int i = 0; i < count; i++) {
        if (is_active(requests[i])) {
            if (request_is_done(requests[i])) {
                return i;
            }
            found = -1;
        }
    }
    return found;
}

/* The same, waiting until there is one. */
static int await_any(struct vrank_face *face, int count,
                     const MPI_Request *requests, const char *why)
{
    int found = find_done(count, requests);
    while (found == -1) {
        advance(face);
        found = find_done(count, requests);
        if (found == -1) {
            vrank_park(why);
            found = find_done(count, requests);
        }
    }
    return found;
}

static int conclude_any(struct vrank_face *face, MPI_Request *requests,
                        int found, int *index, MPI_Status *status)
{
    *index = found;
    if (found == MPI_UNDEFINED) {
        if (status) {
            status_empty(status);
        }
        return MPI_SUCCESS;
    }
    return fail(face, conclude(&requests[found], status));
}

int MPI_Waitany(int count, MPI_Request *requests, int *index,
                MPI_Status *status)
{
    struct vrank_face *face = face_enter("MPI_Waitany");
    int code = check_many(face, count, requests);
    if (code != MPI_SUCCESS) {
        return code;
    }
    int found = await_any(face, count, requests, "MPI_Waitany");
    return conclude_any(face, requests, found, index, status);
}

/* find_done after an attempt at progress. */
static int try_any(struct vrank_face *face, int count,
                   const MPI_Request *requests)
{
    int found = find_done(count, requests);
    if (found == -1) {
        vrank_poll(face->call);
        advance(face);
        found = find_done(count, requests);
    }
    if (found >= 0) {
        vrank_polled();
    }
    return found;
}

int MPI_Testany(int count, MPI_Request *requests, int *index, int *flag,
                MPI_Status *status)
{
    struct vrank_face *face = face_enter("MPI_Testany");
    int code = check_many(face, count, requests);
    if (code != MPI_SUCCESS) {
        return code;
    }
    int found = try_any(face, count, requests);
    *flag = found != -1;
    if (found == -1) {
        *index = MPI_UNDEFINED;
        return MPI_SUCCESS;
    }
    return conclude_any(face, requests, found, index, status);
}

static int conclude_some(struct vrank_face *face, int count,
                         MPI_Request *requests, int *done, int *indices,
                         MPI_Status *statuses)
{
    int result = MPI_SUCCESS, told = 0;
    for (int i = 0; i < count; i++) {
        if (!is_active(requests[i]) || !request_is_done(requests[i])) {
            continue;
        }
        MPI_Status *status = statuses ? &statuses[told] : NULL;
        int code = conclude(&requests[i], status);
        if (code != MPI_SUCCESS) {
            result = MPI_ERR_IN_STATUS;
        }
        if (status) {
            status->MPI_ERROR = code;
        }
        indices[told++] = i;
    }
    *done = told;
    return fail(face, result);
}

int MPI_Waitsome(int count, MPI_Request *requests, int *done, int *indices,
                 MPI_Status *statuses)
{
    struct vrank_face *face = face_enter("MPI_Waitsome");
    int code = check_many(face, count, requests);
    if (code != MPI_SUCCESS) {
        return code;
    }
    if (await_any(face, count, requests, "MPI_Waitsome") == MPI_UNDEFINED) {
        *done = MPI_UNDEFINED;
        return MPI_SUCCESS;
    }
    return conclude_some(face, count, requests, done, indices, statuses);
}

int MPI_Testsome(int count, MPI_Request *requests, int *done, int *indices,
                 MPI_Status *statuses)
{
    struct vrank_face *face = face_enter("MPI_Testsome");
    int code = check_many(face, count, requests);
    if (code != MPI_SUCCESS) {
        return code;
    }
    if (try_any(face, count, requests) == MPI_UNDEFINED) {
        *done = MPI_UNDEFINED;
        return MPI_SUCCESS;
    }
    return conclude_some(face, count, requests, done, indices, statuses);
}
