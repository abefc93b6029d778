/*
 * The functions of MPI that send and receive, blocking, non-blocking and
 * persistent: check what the user says, and hand it to p2p.c.
 */
#include "message.h"

#include <stdlib.h>

/* In every message's way: what callers know is not to go through memory. */
#define HOT inline __attribute__((always_inline))

/* What a call says of a message. */
struct said {
    const void *buf;
    int count;
    MPI_Datatype type;
    int peer, tag;
    MPI_Comm comm;
};

static int fail(struct vrank_mpi *mpi, const struct poise_mpi_comm *comm,
                int code, const struct said *said)
{
    struct poise_mpi_comm *where = (struct poise_mpi_comm *)comm;
    switch (code) {
    case MPI_ERR_RANK:
        return mpi_fail(mpi, where, code, "there is no rank %d among %d",
                        said->peer, vcomm_peers(comm)->size);
    case MPI_ERR_TAG:
        return mpi_fail(mpi, where, code, "%d", said->tag);
    case MPI_ERR_COUNT:
        return mpi_fail(mpi, where, code, "%d", said->count);
    case MPI_ERR_TYPE:
        return mpi_fail(mpi, where, code,
                        said->type ? "it is not committed" : "it is null");
    case MPI_ERR_TRUNCATE:
        return mpi_fail(mpi, where, code, "from rank %d, tag %d", said->peer,
                        said->tag);
    default:
        return mpi_fail(mpi, where, code, NULL);
    }
}

/* Make of it a message; `lowest` is the least rank and tag that are allowed
 * beside MPI_PROC_NULL: 0, or -1 for wildcards. Errors were handed to the
 * handler. */
static HOT int understand(struct vrank_mpi *mpi, const struct said *said,
                          int lowest, struct p2p_message *out)
{
    struct poise_mpi_comm *comm = vcomm_of(mpi, said->comm);
    if (!comm) {
        return mpi_fail(mpi, NULL, MPI_ERR_COMM, "it is MPI_COMM_NULL");
    }
    int code = mpi_data_of(said->buf, said->count, said->type, &out->data);
    if (said->tag < lowest) {
        code = MPI_ERR_TAG;
    }
    if ((said->peer < lowest && said->peer != MPI_PROC_NULL) ||
        said->peer >= vcomm_peers(comm)->size) {
        code = MPI_ERR_RANK;
    }
    if (__builtin_expect(code != MPI_SUCCESS, 0)) {
        return fail(mpi, comm, code, said);
    }
    out->comm = comm;
    out->plane = PLANE_POINT;
    out->mode = SEND_STANDARD;
    out->peer = said->peer;
    out->tag = said->tag;
    return MPI_SUCCESS;
}

static HOT int send_as(const char *call, enum send_mode mode,
                       const struct said *said)
{
    struct vrank_mpi *mpi = mpi_enter(call);
    struct p2p_message what;
    int code = understand(mpi, said, 0, &what);
    if (code != MPI_SUCCESS) {
        return code;
    }
    what.mode = mode;
    code = p2p_send(&what, call);
    return code == MPI_SUCCESS ? code : fail(mpi, what.comm, code, said);
}

static HOT int receive_as(const char *call, const struct said *said,
                          MPI_Status *status)
{
    struct vrank_mpi *mpi = mpi_enter(call);
    struct p2p_message what;
    int code = understand(mpi, said, -1, &what);
    if (code != MPI_SUCCESS) {
        return code;
    }
    code = p2p_receive(&what, call, status);
    return code == MPI_SUCCESS ? code : fail(mpi, what.comm, code, said);
}

static int isend_as(const char *call, enum send_mode mode,
                    const struct said *said, MPI_Request *request)
{
    struct vrank_mpi *mpi = mpi_enter(call);
    struct p2p_message what;
    int code = understand(mpi, said, 0, &what);
    if (code != MPI_SUCCESS) {
        return code;
    }
    what.mode = mode;
    code = p2p_isend(&what, request);
    return code == MPI_SUCCESS ? code : fail(mpi, what.comm, code, said);
}

/* ---- blocking ----------------------------------------------------------- */

int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest, int tag,
             MPI_Comm comm)
{
    return send_as("MPI_Send", SEND_STANDARD,
                   &(struct said){buf, count, type, dest, tag, comm});
}

int MPI_Bsend(const void *buf, int count, MPI_Datatype type, int dest, int tag,
              MPI_Comm comm)
{
    return send_as("MPI_Bsend", SEND_BUFFERED,
                   &(struct said){buf, count, type, dest, tag, comm});
}

int MPI_Ssend(const void *buf, int count, MPI_Datatype type, int dest, int tag,
              MPI_Comm comm)
{
    return send_as("MPI_Ssend", SEND_SYNCHRONOUS,
                   &(struct said){buf, count, type, dest, tag, comm});
}

int MPI_Rsend(const void *buf, int count, MPI_Datatype type, int dest, int tag,
              MPI_Comm comm)
{
    return send_as("MPI_Rsend", SEND_READY,
                   &(struct said){buf, count, type, dest, tag, comm});
}

int MPI_Recv(void *buf, int count, MPI_Datatype type, int source, int tag,
             MPI_Comm comm, MPI_Status *status)
{
    return receive_as("MPI_Recv",
                      &(struct said){buf, count, type, source, tag, comm},
                      status);
}

/* Send and receive at once. */
static int exchange(struct vrank_mpi *mpi, const struct said *send,
                    const struct said *receive, const char *call,
                    MPI_Status *status)
{
    struct p2p_message out, in;
    MPI_Request incoming, outgoing;
    int code = understand(mpi, send, 0, &out);
    if (code == MPI_SUCCESS) {
        code = understand(mpi, receive, -1, &in);
    }
    if (code != MPI_SUCCESS) {
        return code;
    }
    code = p2p_ireceive(&in, &incoming);
    if (code != MPI_SUCCESS) {
        return fail(mpi, in.comm, code, receive);
    }
    code = p2p_isend(&out, &outgoing);
    if (code != MPI_SUCCESS) {
        p2p_cancel(incoming);
        request_orphan(incoming);
        return fail(mpi, out.comm, code, send);
    }
    int received = request_complete(&incoming, call, status);
    code = request_complete(&outgoing, call, NULL);
    if (mpi->blamed) {
        vcomm_release(mpi->blamed);
        mpi->blamed = NULL;
    }
    if (received != MPI_SUCCESS) {
        return fail(mpi, in.comm, received, receive);
    }
    return code == MPI_SUCCESS ? code : fail(mpi, out.comm, code, send);
}

int MPI_Sendrecv(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                 int dest, int sendtag, void *recvbuf, int recvcount,
                 MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
                 MPI_Status *status)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Sendrecv");
    return exchange(
        mpi, &(struct said){sendbuf, sendcount, sendtype, dest, sendtag, comm},
        &(struct said){recvbuf, recvcount, recvtype, source, recvtag, comm},
        "MPI_Sendrecv", status);
}

int MPI_Sendrecv_replace(void *buf, int count, MPI_Datatype type, int dest,
                         int sendtag, int source, int recvtag, MPI_Comm comm,
                         MPI_Status *status)
{
    const char *call = "MPI_Sendrecv_replace";
    struct vrank_mpi *mpi = mpi_enter(call);
    struct said send = {buf, count, type, dest, sendtag, comm};
    struct said receive = {buf, count, type, source, recvtag, comm};
    struct p2p_message out;
    int code = understand(mpi, &send, 0, &out);
    if (code != MPI_SUCCESS) {
        return code;
    }
    size_t bytes = out.data.bytes;
    void *copy = poise_realloc(NULL, bytes ? bytes : 1, 1);
    if (!copy) {
        return fail(mpi, out.comm, MPI_ERR_NO_MEM, &send);
    }
    struct mpi_data packed = {.base = copy, .bytes = bytes};
    mpi_data_copy(&packed, &out.data, bytes);
    /* The copy has no gaps, whatever the type; it may be beyond int. */
    struct poise_mpi_request *outgoing;
    out.data = packed;
    code = p2p_isend(&out, &outgoing);
    if (code != MPI_SUCCESS) {
        free(copy);
        return fail(mpi, out.comm, code, &send);
    }
    outgoing->copy = copy;
    int received = receive_as(call, &receive, status);
    code = request_complete(&outgoing, call, NULL);
    return received != MPI_SUCCESS ? received : code;
}

/* ---- non-blocking ------------------------------------------------------- */

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int dest, int tag,
              MPI_Comm comm, MPI_Request *request)
{
    return isend_as("MPI_Isend", SEND_STANDARD,
                    &(struct said){buf, count, type, dest, tag, comm}, request);
}

int MPI_Ibsend(const void *buf, int count, MPI_Datatype type, int dest, int tag,
               MPI_Comm comm, MPI_Request *request)
{
    return isend_as("MPI_Ibsend", SEND_BUFFERED,
                    &(struct said){buf, count, type, dest, tag, comm}, request);
}

int MPI_Issend(const void *buf, int count, MPI_Datatype type, int dest, int tag,
               MPI_Comm comm, MPI_Request *request)
{
    return isend_as("MPI_Issend", SEND_SYNCHRONOUS,
                    &(struct said){buf, count, type, dest, tag, comm}, request);
}

int MPI_Irsend(const void *buf, int count, MPI_Datatype type, int dest, int tag,
               MPI_Comm comm, MPI_Request *request)
{
    return isend_as("MPI_Irsend", SEND_READY,
                    &(struct said){buf, count, type, dest, tag, comm}, request);
}

int MPI_Irecv(void *buf, int count, MPI_Datatype type, int source, int tag,
              MPI_Comm comm, MPI_Request *request)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Irecv");
    struct said said = {buf, count, type, source, tag, comm};
    struct p2p_message what;
    int code = understand(mpi, &said, -1, &what);
    if (code != MPI_SUCCESS) {
        return code;
    }
    code = p2p_ireceive(&what, request);
    return code == MPI_SUCCESS ? code : fail(mpi, what.comm, code, &said);
}

/* ---- persistent --------------------------------------------------------- */

static int persist(const char *call, enum request_kind kind,
                   enum send_mode mode, const struct said *said,
                   MPI_Request *out)
{
    struct vrank_mpi *mpi = mpi_enter(call);
    struct p2p_message what;
    int code = understand(mpi, said, kind == REQUEST_RECEIVE ? -1 : 0, &what);
    if (code != MPI_SUCCESS) {
        return code;
    }
    what.mode = mode;
    struct poise_mpi_request *request = request_get(mpi);
    if (!request) {
        return fail(mpi, what.comm, MPI_ERR_NO_MEM, said);
    }
    request_fill(request, &what, kind);
    request->persistent = true;
    request->active = false;
    request->done = 1;
    vcomm_hold(what.comm);
    request->counted = true;
    request->type = what.data.type ? type_hold(what.data.type) : NULL;
    *out = request;
    return MPI_SUCCESS;
}

int MPI_Send_init(const void *buf, int count, MPI_Datatype type, int dest,
                  int tag, MPI_Comm comm, MPI_Request *request)
{
    return persist("MPI_Send_init", REQUEST_SEND, SEND_STANDARD,
                   &(struct said){buf, count, type, dest, tag, comm}, request);
}

int MPI_Bsend_init(const void *buf, int count, MPI_Datatype type, int dest,
                   int tag, MPI_Comm comm, MPI_Request *request)
{
    return persist("MPI_Bsend_init", REQUEST_SEND, SEND_BUFFERED,
                   &(struct said){buf, count, type, dest, tag, comm}, request);
}

int MPI_Ssend_init(const void *buf, int count, MPI_Datatype type, int dest,
                   int tag, MPI_Comm comm, MPI_Request *request)
{
    return persist("MPI_Ssend_init", REQUEST_SEND, SEND_SYNCHRONOUS,
                   &(struct said){buf, count, type, dest, tag, comm}, request);
}

int MPI_Rsend_init(const void *buf, int count, MPI_Datatype type, int dest,
                   int tag, MPI_Comm comm, MPI_Request *request)
{
    return persist("MPI_Rsend_init", REQUEST_SEND, SEND_READY,
                   &(struct said){buf, count, type, dest, tag, comm}, request);
}

int MPI_Recv_init(void *buf, int count, MPI_Datatype type, int source, int tag,
                  MPI_Comm comm, MPI_Request *request)
{
    return persist("MPI_Recv_init", REQUEST_RECEIVE, SEND_STANDARD,
                   &(struct said){buf, count, type, source, tag, comm},
                   request);
}

static int start(struct vrank_mpi *mpi, struct poise_mpi_request *request)
{
    if (!request || !request->persistent || request->active) {
        return mpi_fail(mpi, request ? request->comm : NULL, MPI_ERR_REQUEST,
                        "it is not persistent, or active already");
    }
    request->active = true;
    int code = request->kind == REQUEST_SEND   ? p2p_start_send(request)
               : request->kind == REQUEST_TASK ? request_restart(request)
                                               : p2p_start_receive(request);
    if (code != MPI_SUCCESS) {
        request->active = false;
        return mpi_fail(mpi, request->comm, code, NULL);
    }
    return MPI_SUCCESS;
}

int MPI_Start(MPI_Request *request)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Start");
    return start(mpi, request ? *request : NULL);
}

int MPI_Startall(int count, MPI_Request *requests)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Startall");
    int result = MPI_SUCCESS;
    for (int i = 0; i < count; i++) {
        int code = start(mpi, requests[i]);
        result = result == MPI_SUCCESS ? code : result;
    }
    return result;
}

/* ---- the buffer of MPI_Bsend -------------------------------------------- */

int MPI_Buffer_attach(void *buffer, int size)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Buffer_attach");
    if (size < 0 || mpi->buffer) {
        return mpi_fail(mpi, NULL, MPI_ERR_BUFFER, "%s",
                        size < 0 ? "its size is negative"
                                 : "one is attached already");
    }
    mpi->buffer = buffer;
    mpi->buffer_bytes = (size_t)size;
    return MPI_SUCCESS;
}

int MPI_Buffer_detach(void *buffer, int *size)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Buffer_detach");
    if (!mpi->buffer) {
        return mpi_fail(mpi, NULL, MPI_ERR_BUFFER, "none is attached");
    }
    while (__atomic_load_n(&mpi->buffer_used, __ATOMIC_ACQUIRE) > 0) {
        vrank_park("MPI_Buffer_detach");
    }
    *(void **)buffer = mpi->buffer;
    *size = (int)mpi->buffer_bytes;
    mpi->buffer = NULL;
    mpi->buffer_bytes = 0;
    return MPI_SUCCESS;
}
