/*
 * MPI's functions that complete requests: wait, test, cancel and free.
 */
#include "message.h"

/* ---- what the user learns ----------------------------------------------- */

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
    if (request->kind == REQUEST_SEND) {
        status_set(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
    } else {
        status_set(status, request->source, request->received_tag,
                   request->received);
    }
    status->poise_cancelled = request->cancelled;
}

/* Remember whose error handler is to be called: the request, and with it the
 * communicator, may be gone by then. */
static void blame(struct vrank_mpi *mpi, struct poise_mpi_comm *comm)
{
    if (!mpi->blamed && comm) {
        vcomm_hold(comm);
        mpi->blamed = comm;
    }
}

/* Set *status of a request that is done; afterwards it is inactive or given
 * back. */
static int conclude(MPI_Request *handle, MPI_Status *status)
{
    struct poise_mpi_request *request = *handle;
    int code = request->error;
    status_of(request, status);
    if (code != MPI_SUCCESS) {
        blame(request->mpi, request->comm);
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

/* Whether it is done; makes progress if not. */
static bool look(struct vrank_mpi *mpi, struct poise_mpi_request *request)
{
    if (!request_is_done(request)) {
        requests_advance(mpi);
    }
    return request_is_done(request);
}

/* ---- one ---------------------------------------------------------------- */

/* Call the error handler of the communicator that is to blame. */
static int fail(struct vrank_mpi *mpi, int code)
{
    if (code == MPI_SUCCESS) {
        return code;
    }
    struct poise_mpi_comm *comm = mpi->blamed;
    mpi->blamed = NULL;
    code = mpi_fail(mpi, comm, code, NULL);
    if (comm) {
        vcomm_release(comm);
    }
    return code;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Wait");
    if (!request) {
        return mpi_fail(mpi, NULL, MPI_ERR_REQUEST, NULL);
    }
    if (!is_active(*request)) {
        if (status) {
            status_empty(status);
        }
        return MPI_SUCCESS;
    }
    return fail(mpi, request_complete(request, "MPI_Wait", status));
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Test");
    if (!request || !flag) {
        return mpi_fail(mpi, NULL, MPI_ERR_ARG, NULL);
    }
    *flag = 1;
    if (!is_active(*request)) {
        if (status) {
            status_empty(status);
        }
        return MPI_SUCCESS;
    }
    if (!look(mpi, *request)) {
        vrank_poll("MPI_Test");
        if (!look(mpi, *request)) {
            *flag = 0;
            return MPI_SUCCESS;
        }
    }
    vrank_polled();
    return fail(mpi, conclude(request, status));
}

int MPI_Request_free(MPI_Request *request)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Request_free");
    if (!request || !*request) {
        return mpi_fail(mpi, NULL, MPI_ERR_REQUEST, NULL);
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
    struct vrank_mpi *mpi = mpi_enter("MPI_Request_get_status");
    if (!flag) {
        return mpi_fail(mpi, NULL, MPI_ERR_ARG, NULL);
    }
    if (!is_active(request)) {
        *flag = 1;
        if (status) {
            status_empty(status);
        }
        return MPI_SUCCESS;
    }
    *flag = look(mpi, request);
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
    struct vrank_mpi *mpi = mpi_enter("MPI_Cancel");
    if (!request || !*request) {
        return mpi_fail(mpi, NULL, MPI_ERR_REQUEST, NULL);
    }
    if ((*request)->active) {
        p2p_cancel(*request);
    }
    return MPI_SUCCESS;
}

int MPI_Test_cancelled(const MPI_Status *status, int *flag)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Test_cancelled");
    if (!status || !flag) {
        return mpi_fail(mpi, NULL, MPI_ERR_ARG, NULL);
    }
    *flag = status->poise_cancelled;
    return MPI_SUCCESS;
}

int MPI_Status_set_cancelled(MPI_Status *status, int flag)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Status_set_cancelled");
    if (!status) {
        return mpi_fail(mpi, NULL, MPI_ERR_ARG, NULL);
    }
    status->poise_cancelled = flag != 0;
    return MPI_SUCCESS;
}

/* ---- many --------------------------------------------------------------- */

static int check_many(struct vrank_mpi *mpi, int count,
                      const MPI_Request *requests)
{
    if (count < 0) {
        return mpi_fail(mpi, NULL, MPI_ERR_COUNT, NULL);
    }
    if (count > 0 && !requests) {
        return mpi_fail(mpi, NULL, MPI_ERR_REQUEST, NULL);
    }
    return MPI_SUCCESS;
}

/* Conclude all of `count` requests that are done, or inactive. */
static int conclude_all(struct vrank_mpi *mpi, int count, MPI_Request *requests,
                        MPI_Status *statuses)
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
    return fail(mpi, result);
}

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Waitall");
    int code = check_many(mpi, count, requests);
    if (code != MPI_SUCCESS) {
        return code;
    }
    for (int i = 0; i < count; i++) {
        if (is_active(requests[i])) {
            request_wait(requests[i], "MPI_Waitall");
        }
    }
    return conclude_all(mpi, count, requests, statuses);
}

static bool all_done(struct vrank_mpi *mpi, int count, MPI_Request *requests)
{
    for (int i = 0; i < count; i++) {
        if (is_active(requests[i]) && !look(mpi, requests[i])) {
            return false;
        }
    }
    return true;
}

int MPI_Testall(int count, MPI_Request *requests, int *flag,
                MPI_Status *statuses)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Testall");
    int code = check_many(mpi, count, requests);
    if (code != MPI_SUCCESS) {
        return code;
    }
    *flag = all_done(mpi, count, requests);
    if (!*flag) {
        vrank_poll("MPI_Testall");
        *flag = all_done(mpi, count, requests);
    }
    if (!*flag) {
        return MPI_SUCCESS;
    }
    vrank_polled();
    return conclude_all(mpi, count, requests, statuses);
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
static int await_any(struct vrank_mpi *mpi, int count,
                     const MPI_Request *requests, const char *why)
{
    int found = find_done(count, requests);
    while (found == -1) {
        requests_advance(mpi);
        found = find_done(count, requests);
        if (found == -1) {
            vrank_park(why);
            found = find_done(count, requests);
        }
    }
    return found;
}

static int conclude_any(struct vrank_mpi *mpi, MPI_Request *requests, int found,
                        int *index, MPI_Status *status)
{
    *index = found;
    if (found == MPI_UNDEFINED) {
        if (status) {
            status_empty(status);
        }
        return MPI_SUCCESS;
    }
    return fail(mpi, conclude(&requests[found], status));
}

int MPI_Waitany(int count, MPI_Request *requests, int *index,
                MPI_Status *status)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Waitany");
    int code = check_many(mpi, count, requests);
    if (code != MPI_SUCCESS) {
        return code;
    }
    int found = await_any(mpi, count, requests, "MPI_Waitany");
    return conclude_any(mpi, requests, found, index, status);
}

/* find_done after an attempt at progress. */
static int try_any(struct vrank_mpi *mpi, int count,
                   const MPI_Request *requests)
{
    int found = find_done(count, requests);
    if (found == -1) {
        vrank_poll(mpi->call);
        requests_advance(mpi);
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
    struct vrank_mpi *mpi = mpi_enter("MPI_Testany");
    int code = check_many(mpi, count, requests);
    if (code != MPI_SUCCESS) {
        return code;
    }
    int found = try_any(mpi, count, requests);
    *flag = found != -1;
    if (found == -1) {
        *index = MPI_UNDEFINED;
        return MPI_SUCCESS;
    }
    return conclude_any(mpi, requests, found, index, status);
}

static int conclude_some(struct vrank_mpi *mpi, int count,
                         MPI_Request *requests, int *done, int *indices,
                         MPI_Status *statuses)
{
    int result = MPI_SUCCESS, count_done = 0;
    for (int i = 0; i < count; i++) {
        if (!is_active(requests[i]) || !request_is_done(requests[i])) {
            continue;
        }
        MPI_Status *status = statuses ? &statuses[count_done] : NULL;
        int code = conclude(&requests[i], status);
        if (code != MPI_SUCCESS) {
            result = MPI_ERR_IN_STATUS;
        }
        if (status) {
            status->MPI_ERROR = code;
        }
        indices[count_done++] = i;
    }
    *done = count_done;
    return fail(mpi, result);
}

int MPI_Waitsome(int count, MPI_Request *requests, int *done, int *indices,
                 MPI_Status *statuses)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Waitsome");
    int code = check_many(mpi, count, requests);
    if (code != MPI_SUCCESS) {
        return code;
    }
    if (await_any(mpi, count, requests, "MPI_Waitsome") == MPI_UNDEFINED) {
        *done = MPI_UNDEFINED;
        return MPI_SUCCESS;
    }
    return conclude_some(mpi, count, requests, done, indices, statuses);
}

int MPI_Testsome(int count, MPI_Request *requests, int *done, int *indices,
                 MPI_Status *statuses)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Testsome");
    int code = check_many(mpi, count, requests);
    if (code != MPI_SUCCESS) {
        return code;
    }
    if (try_any(mpi, count, requests) == MPI_UNDEFINED) {
        *done = MPI_UNDEFINED;
        return MPI_SUCCESS;
    }
    return conclude_some(mpi, count, requests, done, indices, statuses);
}
