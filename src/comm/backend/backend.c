/*
 * The back end: the only file of Poise that calls MPI. Compiled once against
 * each MPI that is installed, loaded by ../load.c.
 *
 * Messages are received by matched probe, and sent from buffers that this
 * side owns until MPI is done with them, so that no transfer ever blocks.
 */
#include "inside.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- starting and ending ------------------------------------------------ */

/* "Open MPI v4.1.4, package: ..." or "MPICH Version:\t4.0.2\n..." */
static void name_library(char *out, size_t cap)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    char number[32];
    int len = 0;
    MPI_Get_library_version(text, &len);
    if (sscanf(text, "Open MPI v%31[0-9.]", number) == 1) {
        snprintf(out, cap, "Open MPI %s", number);
    } else if (sscanf(text, "MPICH Version: %31[0-9.]", number) == 1) {
        snprintf(out, cap, "MPICH %s", number);
    } else {
        snprintf(out, cap, "%.*s", (int)strcspn(text, ",\n"), text);
    }
}

static int backend_start(struct comm_mpi_start *out)
{
    struct comm_mpi_start start = {0};
    int running = 0, over = 0, level = MPI_THREAD_SINGLE;
    int code = MPI_Initialized(&running);
    if (code == MPI_SUCCESS) {
        code = MPI_Finalized(&over);
    }
    if (code != MPI_SUCCESS) {
        return code;
    }
    if (over) {
        return -EALREADY;
    }
    if (running) {
        code = MPI_Query_thread(&level);
    } else {
        code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
        start.initialised = code == MPI_SUCCESS;
    }
    if (code != MPI_SUCCESS) {
        return code;
    }
    start.threads = level >= MPI_THREAD_FUNNELED;
    name_library(start.name, sizeof start.name);
    *out = start;
    return 0;
}

/* MPICH before 4.2 over UCX: MPI_Finalize flushes each TCP connection, which
 * needs an answer of the other side, but a rank whose own connections are
 * flushed waits for the others in a barrier of the process manager, and answers
 * no more. A rank that is later than the others by more than a message takes
 * waits for ever. Only what Hydra says of hosts is looked at, since nothing may
 * be sent any more. */
static bool finalise_hangs(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int len = 0, minor = 0;
    MPI_Get_library_version(text, &len);
    const char *here = getenv("MPI_LOCALNRANKS"), *all = getenv("PMI_SIZE");
    return sscanf(text, "MPICH Version: 4.%d", &minor) == 1 && minor < 2 &&
           strstr(text, "ch4:ucx") && here && all && strcmp(here, all) != 0;
}

/* Send the process manager what MPI_Finalize would send at its end (PMI version
 * 1, as Hydra speaks it): then it takes the end of the process for a good one.
 * Returns whether it agreed. */
static bool leave_manager(void)
{
    static const char request[] = "cmd=finalize\n";
    static const char wanted[] = "cmd=finalize_ack";
    const char *number = getenv("PMI_FD");
    char answer[64];
    size_t got = 0;
    char *end = NULL;
    long fd = number ? strtol(number, &end, 10) : -1;
    if (fd < 0 || fd > INT_MAX || *end != '\0' ||
        write((int)fd, request, sizeof request - 1) !=
            (ssize_t)(sizeof request - 1)) {
        return false;
    }
    while (got < sizeof answer && !memchr(answer, '\n', got)) {
        ssize_t more = read((int)fd, answer + got, sizeof answer - got);
        if (more <= 0) {
            return false;
        }
        got += (size_t)more;
    }
    return got >= sizeof wanted &&
           memcmp(answer, wanted, sizeof wanted - 1) == 0;
}

static void backend_stop(void)
{
    if (!finalise_hangs() || !leave_manager()) {
        MPI_Finalize();
    }
}

static void backend_describe(int code, char *text, size_t cap)
{
    char full[MPI_MAX_ERROR_STRING];
    int len = 0;
    if (MPI_Error_string(code, full, &len) != MPI_SUCCESS) {
        snprintf(full, sizeof full, "MPI error %d", code);
    }
    snprintf(text, cap, "%s", full);
}

static int wrap(MPI_Comm comm, bool owned, struct comm_mpi **out)
{
    struct comm_mpi *mpi = calloc(1, sizeof *mpi);
    if (!mpi) {
        return -ENOMEM;
    }
    mpi->comm = comm;
    mpi->owned = owned;
    mpi->incoming = mpi->barrier = MPI_REQUEST_NULL;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &mpi->rank);
    MPI_Comm_size(comm, &mpi->size);
    *out = mpi;
    return 0;
}

/* A communicator of the same ranks. No duplicate, which would have copies of
 * attributes, for which it would run the program's code. What goes wrong is for
 * us to say, not for the handler of the program's. */
static int same_ranks(MPI_Comm comm, MPI_Comm *out)
{
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Group group = MPI_GROUP_NULL;
    int code = MPI_Comm_get_errhandler(comm, &handler);
    if (code != MPI_SUCCESS) {
        return code;
    }
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    code = MPI_Comm_group(comm, &group);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_create(comm, group, out);
        MPI_Group_free(&group);
    }
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
    return code;
}

static int backend_open(const void *comm, bool ours, int tag_limit,
                        struct comm_mpi **out)
{
    MPI_Comm chosen = comm ? *(const MPI_Comm *)comm : MPI_COMM_WORLD;
    bool owned = comm || !ours;
    int *limit = NULL, known = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &known);
    if (known && *limit < tag_limit) {
        return -ERANGE;
    }
    if (owned) {
        int code = same_ranks(chosen, &chosen);
        if (code != MPI_SUCCESS) {
            return code;
        }
    }
    int code = wrap(chosen, owned, out);
    if (code < 0 && owned) {
        MPI_Comm_free(&chosen);
    }
    return code;
}

static int backend_split(struct comm_mpi *mpi, int colour, int key,
                         struct comm_mpi **out)
{
    MPI_Comm part;
    int code = MPI_Comm_split(mpi->comm, colour, key, &part);
    if (code != MPI_SUCCESS) {
        return code;
    }
    code = wrap(part, true, out);
    if (code < 0) {
        MPI_Comm_free(&part);
    }
    return code;
}

static int backend_rank(const struct comm_mpi *mpi)
{
    return mpi->rank;
}

static int backend_size(const struct comm_mpi *mpi)
{
    return mpi->size;
}

/* ---- lengths beyond int ------------------------------------------------- */

#define PIECE (INT_MAX / 2 + 1) /* 1 GiB */

/* A type of `len` bytes, committed: pieces and a rest. */
static int long_type(MPI_Count len, MPI_Datatype *out)
{
    MPI_Datatype piece, parts[2];
    int blocks[2] = {1, (int)(len % PIECE)};
    MPI_Aint places[2] = {0, (MPI_Aint)(len - len % PIECE)};
    int code = MPI_Type_contiguous(PIECE, MPI_BYTE, &piece);
    if (code != MPI_SUCCESS) {
        return code;
    }
    parts[1] = MPI_BYTE;
    code = MPI_Type_contiguous((int)(len / PIECE), piece, &parts[0]);
    MPI_Type_free(&piece);
    if (code != MPI_SUCCESS) {
        return code;
    }
    code = MPI_Type_create_struct(2, blocks, places, parts, out);
    MPI_Type_free(&parts[0]);
    if (code == MPI_SUCCESS) {
        code = MPI_Type_commit(out);
    }
    return code;
}

int backend_count_of(MPI_Count len, int *count, MPI_Datatype *type)
{
    if (len < PIECE) {
        *count = (int)len;
        *type = MPI_BYTE;
        return MPI_SUCCESS;
    }
    *count = 1;
    return long_type(len, type);
}

void backend_free_type(MPI_Datatype *type)
{
    if (*type != MPI_BYTE) {
        MPI_Type_free(type);
    }
}

/* ---- sending ------------------------------------------------------------ */

static int grow(struct comm_mpi *mpi)
{
    size_t cap = mpi->cap ? (size_t)mpi->cap * 2 : 16;
    void *requests = realloc(mpi->requests, cap * sizeof *mpi->requests);
    if (requests) {
        mpi->requests = requests;
    }
    void *buffers = realloc(mpi->buffers, cap * sizeof *mpi->buffers);
    if (buffers) {
        mpi->buffers = buffers;
    }
    void *done = realloc(mpi->done, cap * sizeof *mpi->done);
    if (done) {
        mpi->done = done;
    }
    void *statuses = realloc(mpi->statuses, cap * sizeof *mpi->statuses);
    if (statuses) {
        mpi->statuses = statuses;
    }
    if (!requests || !buffers || !done || !statuses) {
        return -ENOMEM;
    }
    mpi->cap = (int)cap;
    return 0;
}

static int backend_send(struct comm_mpi *mpi, int dest, int tag, void *data,
                        size_t len)
{
    MPI_Datatype type;
    int count;
    int code = mpi->pending == mpi->cap ? grow(mpi) : 0;
    if (code == 0) {
        code = backend_count_of((MPI_Count)len, &count, &type);
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Isend(data, count, type, dest, tag, mpi->comm,
                         &mpi->requests[mpi->pending]);
        backend_free_type(&type);
    }
    if (code != MPI_SUCCESS) {
        free(data);
        return code;
    }
    mpi->buffers[mpi->pending++] = data;
    return 0;
}

static size_t backend_reap(struct comm_mpi *mpi)
{
    int count = 0;
    if (mpi->pending == 0) {
        return 0;
    }
    if (MPI_Testsome(mpi->pending, mpi->requests, &count, mpi->done,
                     mpi->statuses) != MPI_SUCCESS ||
        count == MPI_UNDEFINED || count == 0) {
        return (size_t)mpi->pending;
    }
    for (int i = 0; i < count; i++) {
        free(mpi->buffers[mpi->done[i]]);
        mpi->buffers[mpi->done[i]] = NULL;
    }
    int kept = 0;
    for (int i = 0; i < mpi->pending; i++) {
        if (mpi->requests[i] != MPI_REQUEST_NULL) {
            mpi->requests[kept] = mpi->requests[i];
            mpi->buffers[kept++] = mpi->buffers[i];
        }
    }
    mpi->pending = kept;
    return (size_t)kept;
}

static size_t backend_unsent(const struct comm_mpi *mpi)
{
    return (size_t)mpi->pending;
}

/* ---- receiving ---------------------------------------------------------- */

static int backend_probe(struct comm_mpi *mpi, bool *found,
                         struct comm_mpi_message *out)
{
    MPI_Status status;
    int flag = 0;
    int code = MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi->comm, &flag,
                           &mpi->held, &status);
    *found = code == MPI_SUCCESS && flag;
    if (!*found) {
        return code;
    }
    code = MPI_Get_elements_x(&status, MPI_BYTE, &mpi->held_len);
    out->source = status.MPI_SOURCE;
    out->tag = status.MPI_TAG;
    out->len = (size_t)mpi->held_len;
    return code;
}

static int backend_receive(struct comm_mpi *mpi, void *data)
{
    MPI_Datatype type;
    int count;
    int code = backend_count_of(mpi->held_len, &count, &type);
    if (code != MPI_SUCCESS) {
        return code;
    }
    code = MPI_Imrecv(data, count, type, &mpi->held, &mpi->incoming);
    backend_free_type(&type);
    return code;
}

static int backend_received(struct comm_mpi *mpi, bool *done)
{
    int flag = 0;
    int code = MPI_Test(&mpi->incoming, &flag, MPI_STATUS_IGNORE);
    *done = code == MPI_SUCCESS && flag;
    return code;
}

/* ---- leaving ------------------------------------------------------------ */

static int backend_leave(struct comm_mpi *mpi)
{
    return MPI_Ibarrier(mpi->comm, &mpi->barrier);
}

static bool backend_all_left(struct comm_mpi *mpi)
{
    int done = 1;
    return MPI_Test(&mpi->barrier, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
           done;
}

static void backend_close(struct comm_mpi *mpi)
{
    if (mpi->owned) {
        MPI_Comm_free(&mpi->comm);
    }
    free(mpi->requests);
    free(mpi->buffers);
    free(mpi->done);
    free(mpi->statuses);
    free(mpi);
}

static void backend_end_all(struct comm_mpi *mpi, int status)
{
    MPI_Abort(mpi->comm, status);
}

extern const struct comm_backend poise_comm_backend;
__attribute__((visibility("default")))
const struct comm_backend poise_comm_backend = {
    .version = COMM_BACKEND_VERSION,
    .start = backend_start,
    .stop = backend_stop,
    .describe = backend_describe,
    .comm_bytes = sizeof(MPI_Comm),
    .open = backend_open,
    .split = backend_split,
    .rank = backend_rank,
    .size = backend_size,
    .send = backend_send,
    .reap = backend_reap,
    .unsent = backend_unsent,
    .probe = backend_probe,
    .receive = backend_receive,
    .received = backend_received,
    .leave = backend_leave,
    .all_left = backend_all_left,
    .close = backend_close,
    .end_all = backend_end_all,
    .wire_open = backend_wire_open,
    .wire_room = backend_wire_room,
    .wire_send = backend_wire_send,
    .wire_transfer = backend_wire_transfer,
    .wire_poll = backend_wire_poll,
    .wire_busy = backend_wire_busy,
    .wire_close = backend_wire_close,
};
