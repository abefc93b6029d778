/*
 * Reading and writing files: all of MPI's functions for it, which differ in
 * where they begin and in what they return.
 */
#include "internal.h"

enum io_where {
    IO_AT,     /* where the caller says */
    IO_OWN,    /* at this rank's pointer */
    IO_SHARED, /* at the shared one */
    IO_ORDERED /* the same, in the order of the ranks */
};

/* One call. */
struct io {
    const char *call;
    MPI_File file;
    enum io_where where;
    bool writes;
    MPI_Offset offset; /* of IO_AT */
    const void *buf;
    int count;
    MPI_Datatype type;
};

static int io_check(const struct io *io, struct mpi_data *data)
{
    const struct poise_mpi_file *file = io->file;
    bool is_shared = io->where == IO_SHARED || io->where == IO_ORDERED;
    if (io->writes && (file->amode & MPI_MODE_RDONLY) != 0) {
        return MPI_ERR_READ_ONLY;
    }
    if (!io->writes && (file->amode & MPI_MODE_WRONLY) != 0) {
        return MPI_ERR_ACCESS;
    }
    if (!is_shared && (file->amode & MPI_MODE_SEQUENTIAL) != 0) {
        return MPI_ERR_UNSUPPORTED_OPERATION;
    }
    if (io->where == IO_AT && io->offset < 0) {
        return MPI_ERR_ARG;
    }
    int code = mpi_data_of(io->buf, io->count, io->type, data);
    if (code == MPI_SUCCESS && file->etype->size > 0 &&
        data->bytes % file->etype->size != 0) {
        code = MPI_ERR_IO;
    }
    if (code == MPI_SUCCESS && file->external) {
        /* What is converted needs its type, even without gaps. */
        data->type = io->type;
        data->count = io->count;
        code = type_external_bytes(io->type) == io->type->size
                   ? MPI_SUCCESS
                   : MPI_ERR_CONVERSION;
    }
    return code;
}

/* Where the data of this rank begin among those of all, which begin at the
 * shared pointer. Collective. */
static int io_order(struct poise_mpi_file *file, MPI_Offset count,
                    MPI_Offset *begin)
{
    MPI_Comm comm = vcomm_handle(file->comm);
    MPI_Offset before = 0, answer[2] = {MPI_SUCCESS, 0}, total = 0;
    int code = MPI_Exscan(&count, &before, 1, MPI_LONG_LONG, MPI_SUM, comm);
    before = file->comm->rank == 0 ? 0 : before;
    total = before + count;
    if (code == MPI_SUCCESS) {
        code = MPI_Bcast(&total, 1, MPI_LONG_LONG, file->comm->size - 1, comm);
    }
    if (code == MPI_SUCCESS && file->comm->rank == 0) {
        answer[0] = file_shared_take(file, total, &answer[1]);
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Bcast(answer, 2, MPI_LONG_LONG, 0, comm);
    }
    *begin = answer[1] + before;
    return code != MPI_SUCCESS ? code : (int)answer[0];
}

static int io_begin(const struct io *io, MPI_Offset count, MPI_Offset *begin)
{
    struct poise_mpi_file *file = io->file;
    switch (io->where) {
    case IO_AT:
        *begin = io->offset;
        return MPI_SUCCESS;
    case IO_OWN:
        *begin = file->position;
        return MPI_SUCCESS;
    case IO_SHARED:
        return file_shared_take(file, count, begin);
    case IO_ORDERED:
        break;
    }
    return io_order(file, count, begin);
}

/* All that write in order must take part, be their arguments right or wrong. */
static int io_go(const struct io *io, size_t *done)
{
    struct poise_mpi_file *file = io->file;
    struct mpi_data data = {0};
    MPI_Offset begin = 0, size = (MPI_Offset)file->etype->size;
    *done = 0;
    int code = io_check(io, &data);
    if (code != MPI_SUCCESS && io->where != IO_ORDERED) {
        return code;
    }
    MPI_Offset count =
        code == MPI_SUCCESS && size > 0 ? (MPI_Offset)data.bytes / size : 0;
    int later = io_begin(io, count, &begin);
    code = code != MPI_SUCCESS ? code : later;
    if (code == MPI_SUCCESS) {
        code = file_move(file, begin * size, &data, io->writes, done);
    }
    if (io->where == IO_OWN && size > 0) {
        file->position += (MPI_Offset)*done / size;
    }
    return code;
}

static int io_run(const struct io *io, MPI_Status *status)
{
    struct vrank_mpi *mpi = mpi_enter(io->call);
    size_t done = 0;
    if (io->file == NULL) {
        return file_fail(mpi, NULL, MPI_ERR_FILE, "");
    }
    int code = io_go(io, &done);
    mpi->call = io->call;
    if (status != NULL) {
        status_set(status, MPI_ANY_SOURCE, MPI_ANY_TAG, done);
    }
    return code == MPI_SUCCESS ? code : file_fail(mpi, io->file, code, "");
}

static int io_is_done(struct poise_mpi_request *request)
{
    (void)request;
    return 1;
}

static int io_start(const struct io *io, MPI_Request *request)
{
    MPI_Status status = {0};
    int code = io_run(io, &status);
    if (code != MPI_SUCCESS) {
        *request = MPI_REQUEST_NULL;
        return code;
    }
    code = request_task(io->file->comm, io_is_done, NULL, NULL, request);
    if (code != MPI_SUCCESS) {
        return file_fail(io->file->mpi, io->file, code, "");
    }
    (*request)->received = (size_t)status.poise_bytes;
    return MPI_SUCCESS;
}

static int io_split_begin(const struct io *io)
{
    if (io->file != NULL && io->file->has_split) {
        return file_fail(mpi_enter(io->call), io->file, MPI_ERR_OTHER,
                         "another split call has begun and not ended");
    }
    MPI_Status status = {0};
    int code = io_run(io, &status);
    if (code == MPI_SUCCESS) {
        io->file->has_split = true;
        io->file->split_bytes = (size_t)status.poise_bytes;
    }
    return code;
}

static int io_split_end(const char *call, MPI_File file, MPI_Status *status)
{
    struct vrank_mpi *mpi = mpi_enter(call);
    if (file == NULL || !file->has_split) {
        return file_fail(mpi, file, file ? MPI_ERR_OTHER : MPI_ERR_FILE,
                         "no split call has begun");
    }
    file->has_split = false;
    if (status != NULL) {
        status_set(status, MPI_ANY_SOURCE, MPI_ANY_TAG, file->split_bytes);
    }
    return MPI_SUCCESS;
}

/* ---- the functions ------------------------------------------------------ */

/* Where in the file: where a pointer is, or at an offset that the caller gives,
 * in which case the function has one argument more. */
#define IO_POINTER()
#define IO_OFFSET() MPI_Offset offset,

#define IO_ANY int count, MPI_Datatype type
#define IO(name, place, begin, is_write)                                       \
    {                                                                          \
        .call = "MPI_File_" #name, .file = file, .where = place,               \
        .writes = is_write, .offset = begin, .buf = buf, .count = count,       \
        .type = type                                                           \
    }
#define IO_BLOCKING(name, where, place, begin, is_write, constness)            \
    int MPI_File_##name(MPI_File file, where() constness void *buf, IO_ANY,    \
                        MPI_Status *status)                                    \
    {                                                                          \
        struct io io = IO(name, place, begin, is_write);                       \
        return io_run(&io, status);                                            \
    }
#define IO_STARTING(name, where, place, begin, is_write, constness)            \
    int MPI_File_##name(MPI_File file, where() constness void *buf, IO_ANY,    \
                        MPI_Request *request)                                  \
    {                                                                          \
        struct io io = IO(name, place, begin, is_write);                       \
        return io_start(&io, request);                                         \
    }
#define IO_SPLIT(name, where, place, begin, is_write, constness)               \
    int MPI_File_##name##_begin(MPI_File file, where() constness void *buf,    \
                                IO_ANY)                                        \
    {                                                                          \
        struct io io = IO(name##_begin, place, begin, is_write);               \
        return io_split_begin(&io);                                            \
    }                                                                          \
    int MPI_File_##name##_end(MPI_File file, constness void *buf,              \
                              MPI_Status *status)                              \
    {                                                                          \
        (void)buf;                                                             \
        return io_split_end("MPI_File_" #name "_end", file, status);           \
    }

#define IO_OWN_ARGS IO_POINTER, IO_OWN, 0
#define IO_SHARED_ARGS IO_POINTER, IO_SHARED, 0
#define IO_ORDERED_ARGS IO_POINTER, IO_ORDERED, 0
#define IO_AT_ARGS IO_OFFSET, IO_AT, offset
#define IO_MAKE(how, ...) how(__VA_ARGS__)
#define IO_ALL(verb, ...)                                                      \
    IO_MAKE(IO_BLOCKING, verb, IO_OWN_ARGS, __VA_ARGS__)                       \
    IO_MAKE(IO_BLOCKING, verb##_all, IO_OWN_ARGS, __VA_ARGS__)                 \
    IO_MAKE(IO_BLOCKING, verb##_shared, IO_SHARED_ARGS, __VA_ARGS__)           \
    IO_MAKE(IO_BLOCKING, verb##_ordered, IO_ORDERED_ARGS, __VA_ARGS__)         \
    IO_MAKE(IO_BLOCKING, verb##_at, IO_AT_ARGS, __VA_ARGS__)                   \
    IO_MAKE(IO_BLOCKING, verb##_at_all, IO_AT_ARGS, __VA_ARGS__)               \
    IO_MAKE(IO_STARTING, i##verb, IO_OWN_ARGS, __VA_ARGS__)                    \
    IO_MAKE(IO_STARTING, i##verb##_all, IO_OWN_ARGS, __VA_ARGS__)              \
    IO_MAKE(IO_STARTING, i##verb##_shared, IO_SHARED_ARGS, __VA_ARGS__)        \
    IO_MAKE(IO_STARTING, i##verb##_at, IO_AT_ARGS, __VA_ARGS__)                \
    IO_MAKE(IO_STARTING, i##verb##_at_all, IO_AT_ARGS, __VA_ARGS__)            \
    IO_MAKE(IO_SPLIT, verb##_all, IO_OWN_ARGS, __VA_ARGS__)                    \
    IO_MAKE(IO_SPLIT, verb##_ordered, IO_ORDERED_ARGS, __VA_ARGS__)            \
    IO_MAKE(IO_SPLIT, verb##_at_all, IO_AT_ARGS, __VA_ARGS__)

/* What is read goes to a buffer that is not const. */
#define IO_NO_CONST
IO_ALL(read, false, IO_NO_CONST)
IO_ALL(write, true, const)
