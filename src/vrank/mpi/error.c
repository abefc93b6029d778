/*
 * Errors: classes, texts, handlers.
 *
 * An error is handed to the handler of the communicator in whose use it
 * occurred; without one it is MPI_COMM_WORLD's. At first that is
 * MPI_ERRORS_ARE_FATAL everywhere, which ends the job and says which rank
 * called what, and what was wrong.
 */
#include "comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct poise_mpi_errhandler poise_mpi_errors_are_fatal = {.refs = 1};
const struct poise_mpi_errhandler poise_mpi_errors_return = {.refs = 1};

static const char *const class_texts[] = {
    [MPI_SUCCESS] = "no error",
    [MPI_ERR_BUFFER] = "invalid buffer, or the attached buffer is full",
    [MPI_ERR_COUNT] = "invalid count",
    [MPI_ERR_TYPE] = "invalid data type",
    [MPI_ERR_TAG] = "invalid tag",
    [MPI_ERR_COMM] = "invalid communicator",
    [MPI_ERR_RANK] = "invalid rank",
    [MPI_ERR_REQUEST] = "invalid request",
    [MPI_ERR_ROOT] = "invalid root",
    [MPI_ERR_GROUP] = "invalid group",
    [MPI_ERR_OP] = "invalid operation",
    [MPI_ERR_TOPOLOGY] = "invalid topology",
    [MPI_ERR_DIMS] = "invalid dimensions",
    [MPI_ERR_ARG] = "invalid argument",
    [MPI_ERR_UNKNOWN] = "unknown error",
    [MPI_ERR_TRUNCATE] = "message longer than the receive buffer",
    [MPI_ERR_OTHER] = "other error",
    [MPI_ERR_INTERN] = "internal error",
    [MPI_ERR_PENDING] = "request not yet complete",
    [MPI_ERR_IN_STATUS] = "error code in a status",
    [MPI_ERR_ACCESS] = "permission denied",
    [MPI_ERR_AMODE] = "invalid access mode",
    [MPI_ERR_ASSERT] = "invalid assertion",
    [MPI_ERR_BAD_FILE] = "invalid file name",
    [MPI_ERR_BASE] = "invalid base address",
    [MPI_ERR_CONVERSION] = "error in a conversion function",
    [MPI_ERR_DISP] = "invalid displacement",
    [MPI_ERR_DUP_DATAREP] = "data representation defined already",
    [MPI_ERR_FILE_EXISTS] = "file exists",
    [MPI_ERR_FILE_IN_USE] = "file in use",
    [MPI_ERR_FILE] = "invalid file handle",
    [MPI_ERR_INFO_KEY] = "info key too long",
    [MPI_ERR_INFO_NOKEY] = "no such info key",
    [MPI_ERR_INFO_VALUE] = "info value too long",
    [MPI_ERR_INFO] = "invalid info object",
    [MPI_ERR_IO] = "input or output error",
    [MPI_ERR_KEYVAL] = "invalid attribute key",
    [MPI_ERR_LOCKTYPE] = "invalid kind of lock",
    [MPI_ERR_NAME] = "no such service name",
    [MPI_ERR_NO_MEM] = "out of memory",
    [MPI_ERR_NOT_SAME] = "collective arguments differ",
    [MPI_ERR_NO_SPACE] = "no space left",
    [MPI_ERR_NO_SUCH_FILE] = "no such file",
    [MPI_ERR_PORT] = "invalid port name",
    [MPI_ERR_QUOTA] = "quota exceeded",
    [MPI_ERR_READ_ONLY] = "read-only file",
    [MPI_ERR_RMA_ATTACH] = "memory cannot be attached",
    [MPI_ERR_RMA_CONFLICT] = "conflicting accesses",
    [MPI_ERR_RMA_FLAVOR] = "wrong kind of window",
    [MPI_ERR_RMA_RANGE] = "outside of the window",
    [MPI_ERR_RMA_SHARED] = "memory cannot be shared",
    [MPI_ERR_RMA_SYNC] = "wrong synchronisation",
    [MPI_ERR_SERVICE] = "unknown service",
    [MPI_ERR_SIZE] = "invalid size",
    [MPI_ERR_SPAWN] = "processes cannot be started",
    [MPI_ERR_UNSUPPORTED_DATAREP] = "unsupported data representation",
    [MPI_ERR_UNSUPPORTED_OPERATION] = "unsupported operation",
    [MPI_ERR_WIN] = "invalid window",
};
#define CLASS_COUNT ((int)(sizeof class_texts / sizeof class_texts[0]))

/* ---- classes and codes of the user -------------------------------------- */

struct code {
    int class;
    char *text; /* owned; NULL: none */
};

/* Numbers MPI_ERR_LASTCODE + 1 and on. */
struct mpi_codes {
    struct code *items;
    int count;
};

void mpi_codes_free(struct vrank_mpi *mpi)
{
    if (!mpi->codes) {
        return;
    }
    for (int i = 0; i < mpi->codes->count; i++) {
        free(mpi->codes->items[i].text);
    }
    free(mpi->codes->items);
    free(mpi->codes);
    mpi->codes = NULL;
}

static struct code *code_find(struct vrank_mpi *mpi, int code)
{
    int at = code - MPI_ERR_LASTCODE - 1;
    return mpi->codes && at >= 0 && at < mpi->codes->count
               ? &mpi->codes->items[at]
               : NULL;
}

static bool is_known(struct vrank_mpi *mpi, int code)
{
    return (code >= 0 && code < CLASS_COUNT) || code_find(mpi, code);
}

int mpi_error_class(struct vrank_mpi *mpi, int code)
{
    const struct code *own = code_find(mpi, code);
    if (own) {
        return own->class;
    }
    return code >= 0 && code < CLASS_COUNT ? code : MPI_ERR_UNKNOWN;
}

const char *mpi_error_text(struct vrank_mpi *mpi, int code)
{
    const struct code *own = code_find(mpi, code);
    if (own) {
        return own->text ? own->text : "";
    }
    return class_texts[code >= 0 && code < CLASS_COUNT ? code
                                                       : MPI_ERR_UNKNOWN];
}

/* A new code of `class`, or a class of its own (0). */
static int code_add(struct vrank_mpi *mpi, int class, int *out)
{
    if (!mpi->codes) {
        mpi->codes = poise_alloc(1, sizeof *mpi->codes);
        if (!mpi->codes) {
            return MPI_ERR_NO_MEM;
        }
    }
    int count = mpi->codes->count;
    void *items = poise_realloc(mpi->codes->items, (size_t)count + 1,
                                sizeof(struct code));
    if (!items) {
        return MPI_ERR_NO_MEM;
    }
    mpi->codes->items = items;
    int code = MPI_ERR_LASTCODE + 1 + count;
    mpi->codes->items[count] = (struct code){.class = class ? class : code};
    mpi->codes->count++;
    *out = code;
    return MPI_SUCCESS;
}

int MPI_Add_error_class(int *class)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Add_error_class");
    int code = code_add(mpi, 0, class);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, NULL, code, NULL);
}

int MPI_Add_error_code(int class, int *code)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Add_error_code");
    if (!is_known(mpi, class)) {
        return mpi_fail(mpi, NULL, MPI_ERR_ARG, "there is no class %d", class);
    }
    int result = code_add(mpi, class, code);
    return result == MPI_SUCCESS ? result : mpi_fail(mpi, NULL, result, NULL);
}

int MPI_Add_error_string(int code, const char *text)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Add_error_string");
    struct code *own = code_find(mpi, code);
    if (!own || strlen(text) >= MPI_MAX_ERROR_STRING) {
        return mpi_fail(mpi, NULL, MPI_ERR_ARG, NULL);
    }
    char *copy = strdup(text);
    if (!copy) {
        return mpi_fail(mpi, NULL, MPI_ERR_NO_MEM, NULL);
    }
    free(own->text);
    own->text = copy;
    return MPI_SUCCESS;
}

int MPI_Error_class(int code, int *class)
{
    struct vrank_mpi *mpi = mpi_enter_any("MPI_Error_class");
    *class = mpi_error_class(mpi, code);
    return MPI_SUCCESS;
}

int MPI_Error_string(int code, char *text, int *length)
{
    struct vrank_mpi *mpi = mpi_enter_any("MPI_Error_string");
    snprintf(text, MPI_MAX_ERROR_STRING, "%s", mpi_error_text(mpi, code));
    *length = (int)strlen(text);
    return MPI_SUCCESS;
}

/* ---- handlers ----------------------------------------------------------- */

static bool is_predefined(MPI_Errhandler handler)
{
    return handler == MPI_ERRORS_ARE_FATAL || handler == MPI_ERRORS_RETURN;
}

MPI_Errhandler errhandler_hold(MPI_Errhandler handler)
{
    if (!is_predefined(handler)) {
        handler->refs++;
    }
    return handler;
}

void errhandler_release(MPI_Errhandler handler)
{
    if (!is_predefined(handler) && --handler->refs == 0) {
        free(handler);
    }
}

_Noreturn void errhandler_be_fatal(struct vrank_mpi *mpi, const char *on,
                                   int code, const char *what)
{
    for (;;) {
        vrank_abort(code & 0x7f ? code & 0x7f : 1,
                    "virtual rank %d: %s failed%s%s: %s%s%s", mpi->number,
                    mpi->call, on[0] ? " on " : "", on,
                    mpi_error_text(mpi, code), what[0] ? ": " : "", what);
    }
}

int mpi_fail(struct vrank_mpi *mpi, struct poise_mpi_comm *comm, int code,
             const char *fmt, ...)
{
    char what[256] = "";
    comm = comm ? comm : mpi->world;
    MPI_Errhandler handler = comm ? comm->handler : MPI_ERRORS_ARE_FATAL;
    if (handler == MPI_ERRORS_RETURN) {
        return code;
    }
    if (handler->function) {
        MPI_Comm handle = vcomm_handle(comm);
        int passed = code;
        handler->function(&handle, &passed);
        return code;
    }
    if (fmt) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(what, sizeof what, fmt, args);
        va_end(args);
    }
    errhandler_be_fatal(mpi, comm ? comm->name : "", code, what);
}

int MPI_Comm_create_errhandler(MPI_Comm_errhandler_function *function,
                               MPI_Errhandler *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_create_errhandler");
    if (!function) {
        return mpi_fail(mpi, NULL, MPI_ERR_ARG, NULL);
    }
    struct poise_mpi_errhandler *handler = poise_alloc(1, sizeof *handler);
    if (!handler) {
        return mpi_fail(mpi, NULL, MPI_ERR_NO_MEM, NULL);
    }
    handler->refs = 1;
    handler->function = function;
    *out = handler;
    return MPI_SUCCESS;
}

int MPI_Errhandler_create(MPI_Handler_function *function, MPI_Errhandler *out)
{
    return MPI_Comm_create_errhandler(function, out);
}

int MPI_Comm_set_errhandler(MPI_Comm handle, MPI_Errhandler handler)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_set_errhandler");
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle);
    if (!comm) {
        return mpi_fail(mpi, NULL, MPI_ERR_COMM, NULL);
    }
    if (!handler) {
        return mpi_fail(mpi, comm, MPI_ERR_ARG, NULL);
    }
    errhandler_hold(handler);
    errhandler_release(comm->handler);
    comm->handler = handler;
    return MPI_SUCCESS;
}

int MPI_Errhandler_set(MPI_Comm comm, MPI_Errhandler handler)
{
    return MPI_Comm_set_errhandler(comm, handler);
}

int MPI_Comm_get_errhandler(MPI_Comm handle, MPI_Errhandler *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_get_errhandler");
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle);
    if (!comm) {
        return mpi_fail(mpi, NULL, MPI_ERR_COMM, NULL);
    }
    *out = errhandler_hold(comm->handler);
    return MPI_SUCCESS;
}

int MPI_Errhandler_get(MPI_Comm comm, MPI_Errhandler *out)
{
    return MPI_Comm_get_errhandler(comm, out);
}

int MPI_Errhandler_free(MPI_Errhandler *handler)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Errhandler_free");
    if (!handler || !*handler) {
        return mpi_fail(mpi, NULL, MPI_ERR_ARG, NULL);
    }
    errhandler_release(*handler);
    *handler = MPI_ERRHANDLER_NULL;
    return MPI_SUCCESS;
}

int MPI_Comm_call_errhandler(MPI_Comm handle, int code)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_call_errhandler");
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle);
    if (!comm) {
        return mpi_fail(mpi, NULL, MPI_ERR_COMM, NULL);
    }
    mpi_fail(mpi, comm, code, NULL);
    return MPI_SUCCESS;
}
