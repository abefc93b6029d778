/*
 * Files: opening and closing, sizes, views, pointers, error handlers.
 * internal.h has the idea.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- errors ------------------------------------------------------------- */

int file_class(int code)
{
    switch (abs(code)) {
    case ENOENT:
        return MPI_ERR_NO_SUCH_FILE;
    case EEXIST:
        return MPI_ERR_FILE_EXISTS;
    case EACCES:
    case EPERM:
        return MPI_ERR_ACCESS;
    case EROFS:
        return MPI_ERR_READ_ONLY;
    case ENOSPC:
        return MPI_ERR_NO_SPACE;
    case EDQUOT:
        return MPI_ERR_QUOTA;
    case ENAMETOOLONG:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
        return MPI_ERR_BAD_FILE;
    case ENOMEM:
        return MPI_ERR_NO_MEM;
    case EINVAL:
        return MPI_ERR_ARG;
    default:
        return MPI_ERR_IO;
    }
}

int file_fail(struct vrank_mpi *mpi, MPI_File file, int code, const char *what)
{
    MPI_Errhandler handler = file ? file->handler : mpi->file_handler;
    handler = handler ? handler : MPI_ERRORS_RETURN;
    if (handler == MPI_ERRORS_RETURN) {
        return code;
    }
    if (handler->file_function) {
        MPI_File handle = file;
        int passed = code;
        handler->file_function(&handle, &passed);
        return code;
    }
    errhandler_be_fatal(mpi, file ? file->path : "", code, what);
}

/* A file's, or the one that files begin with. */
static MPI_Errhandler *handler_of(struct vrank_mpi *mpi, MPI_File file)
{
    MPI_Errhandler *handler = file ? &file->handler : &mpi->file_handler;
    *handler = *handler ? *handler : MPI_ERRORS_RETURN;
    return handler;
}

int MPI_File_create_errhandler(MPI_File_errhandler_function *function,
                               MPI_Errhandler *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_File_create_errhandler");
    struct poise_mpi_errhandler *handler = NULL;
    if (function) {
        handler = poise_alloc(1, sizeof *handler);
    }
    if (!handler) {
        return file_fail(mpi, NULL, function ? MPI_ERR_NO_MEM : MPI_ERR_ARG,
                         "");
    }
    handler->refs = 1;
    handler->file_function = function;
    *out = handler;
    return MPI_SUCCESS;
}

int MPI_File_set_errhandler(MPI_File file, MPI_Errhandler handler)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_File_set_errhandler");
    if (!handler) {
        return file_fail(mpi, file, MPI_ERR_ARG, "");
    }
    MPI_Errhandler *place = handler_of(mpi, file);
    errhandler_hold(handler);
    errhandler_release(*place);
    *place = handler;
    return MPI_SUCCESS;
}

int MPI_File_get_errhandler(MPI_File file, MPI_Errhandler *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_File_get_errhandler");
    *out = errhandler_hold(*handler_of(mpi, file));
    return MPI_SUCCESS;
}

int MPI_File_call_errhandler(MPI_File file, int code)
{
    file_fail(mpi_enter("MPI_File_call_errhandler"), file, code, "");
    return MPI_SUCCESS;
}

/* At the beginning of what needs a file; NULL: *code is set. */
static struct vrank_mpi *enter(const char *call, MPI_File file, int *code)
{
    struct vrank_mpi *mpi = mpi_enter(call);
    *code = MPI_SUCCESS;
    if (!file) {
        *code = file_fail(mpi, NULL, MPI_ERR_FILE, "");
        return NULL;
    }
    return mpi;
}

/* ---- opening and closing ------------------------------------------------ */

static void file_free(struct poise_mpi_file *file)
{
    struct poise_mpi_file **link = &file->mpi->files;
    while (*link && *link != file) {
        link = &(*link)->next;
    }
    if (*link) {
        *link = file->next;
    }
    if (file->fd >= 0) {
        close(file->fd);
    }
    if (file->shared_fd >= 0) {
        close(file->shared_fd);
    }
    type_release(file->etype);
    type_release(file->filetype);
    errhandler_release(file->handler);
    free(file->shared_path);
    free(file->path);
    free(file);
}

void files_free(struct vrank_mpi *mpi)
{
    while (mpi->files) {
        file_free(mpi->files);
    }
    if (mpi->file_handler) {
        errhandler_release(mpi->file_handler);
    }
}

/* What rank 0 broadcasts of a file that it opened. */
struct file_news {
    MPI_Offset error, bytes, token;
};

static int amode_check(int amode)
{
    int kinds = amode & (MPI_MODE_RDONLY | MPI_MODE_WRONLY | MPI_MODE_RDWR);
    int known = MPI_MODE_RDONLY | MPI_MODE_WRONLY | MPI_MODE_RDWR |
                MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_DELETE_ON_CLOSE |
                MPI_MODE_UNIQUE_OPEN | MPI_MODE_APPEND | MPI_MODE_SEQUENTIAL;
    if ((amode & ~known) != 0 || kinds == 0 || (kinds & (kinds - 1)) != 0) {
        return MPI_ERR_AMODE;
    }
    if ((kinds == MPI_MODE_RDONLY &&
         (amode & (MPI_MODE_CREATE | MPI_MODE_EXCL)) != 0) ||
        (kinds == MPI_MODE_RDWR && (amode & MPI_MODE_SEQUENTIAL) != 0)) {
        return MPI_ERR_AMODE;
    }
    return MPI_SUCCESS;
}

static int open_flags(int amode)
{
    int flags = O_CLOEXEC;
    if ((amode & MPI_MODE_RDONLY) != 0) {
        return flags | O_RDONLY;
    }
    return flags | ((amode & MPI_MODE_RDWR) != 0 ? O_RDWR : O_WRONLY);
}

/* Rank 0 creates the file; afterwards it is there for all. */
static void open_first(struct poise_mpi_file *file, struct file_news *news)
{
    int flags = open_flags(file->amode);
    flags |= (file->amode & MPI_MODE_CREATE) != 0 ? O_CREAT : 0;
    flags |= (file->amode & MPI_MODE_EXCL) != 0 ? O_EXCL : 0;
    struct stat status;
    file->fd = poise_file_open(AT_FDCWD, file->path, flags, 0666);
    if (file->fd < 0) {
        news->error = file_class(file->fd);
    } else if (fstat(file->fd, &status) == 0) {
        news->bytes = status.st_size;
    }
    /* The names of pointers differ from those that earlier runs left when they
     * crashed. */
    news->token =
        (MPI_Offset)(poise_clock_ns() ^ ((uint64_t)(unsigned)getpid() << 40));
}

/* All ranks succeed, or none. */
static int open_all(struct poise_mpi_file *file)
{
    MPI_Comm comm = vcomm_handle(file->comm);
    struct file_news news = {.error = amode_check(file->amode)};
    if (file->comm->rank == 0 && news.error == MPI_SUCCESS) {
        open_first(file, &news);
    }
    int code = MPI_Bcast(&news, 3, MPI_LONG_LONG, 0, comm);
    if (code == MPI_SUCCESS && file->comm->rank != 0 &&
        news.error == MPI_SUCCESS) {
        file->fd = poise_file_open(AT_FDCWD, file->path,
                                   open_flags(file->amode), 0666);
        news.error = file->fd < 0 ? file_class(file->fd) : MPI_SUCCESS;
    }
    if (asprintf(&file->shared_path, "%s.poise-%llx", file->path,
                 (unsigned long long)news.token) < 0) {
        file->shared_path = NULL;
        news.error = MPI_ERR_NO_MEM;
    }
    if ((file->amode & MPI_MODE_APPEND) != 0) {
        file->position = file->shared_start = news.bytes;
    }
    MPI_Offset worst = MPI_SUCCESS;
    if (code == MPI_SUCCESS) {
        code =
            MPI_Allreduce(&news.error, &worst, 1, MPI_LONG_LONG, MPI_MAX, comm);
    }
    return code != MPI_SUCCESS ? code : (int)worst;
}

static struct poise_mpi_file *file_new(struct vrank_mpi *mpi, const char *path,
                                       int amode)
{
    struct poise_mpi_file *file = poise_alloc(1, sizeof *file);
    if (!file) {
        return NULL;
    }
    *file = (struct poise_mpi_file){.mpi = mpi,
                                    .fd = -1,
                                    .shared_fd = -1,
                                    .amode = amode,
                                    .etype = MPI_BYTE,
                                    .filetype = MPI_BYTE,
                                    .next = mpi->files};
    file->handler = errhandler_hold(*handler_of(mpi, NULL));
    mpi->files = file;
    /* As ROMIO does, a kind of file system before a colon is passed over. */
    file->path = strdup(strncmp(path, "ufs:", 4) == 0 ? path + 4 : path);
    return file;
}

int MPI_File_open(MPI_Comm handle, const char *path, int amode, MPI_Info info,
                  MPI_File *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_File_open");
    struct poise_mpi_comm *over = vcomm_of(mpi, handle);
    MPI_Comm comm = MPI_COMM_NULL;
    (void)info;
    *out = MPI_FILE_NULL;
    if (!over || over->remote) {
        return file_fail(mpi, NULL, MPI_ERR_COMM, "");
    }
    int code = vcomm_make(over, over->group, "MPI_File_open", &comm);
    if (code != MPI_SUCCESS) {
        return file_fail(mpi, NULL, code, "");
    }
    struct poise_mpi_file *file = file_new(mpi, path, amode);
    int mine = file && file->path ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    int worst = mine;
    code = MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MAX, comm);
    code = code != MPI_SUCCESS ? code : worst;
    if (code == MPI_SUCCESS) {
        file->comm = vcomm_of(mpi, comm);
        code = open_all(file);
    }
    if (code == MPI_SUCCESS) {
        *out = file;
        return MPI_SUCCESS;
    }
    if (file) {
        file_free(file);
    }
    MPI_Comm_free(&comm);
    mpi->call = "MPI_File_open";
    return file_fail(mpi, NULL, code, path);
}

int MPI_File_close(MPI_File *handle)
{
    int code;
    struct poise_mpi_file *file = handle ? *handle : NULL;
    struct vrank_mpi *mpi = enter("MPI_File_close", file, &code);
    if (!mpi) {
        return code;
    }
    MPI_Comm comm = vcomm_handle(file->comm);
    bool is_first = file->comm->rank == 0;
    /* No rank uses the file, or its pointer, any more. */
    code = MPI_Barrier(comm);
    if (is_first) {
        unlink(file->shared_path);
    }
    if (is_first && (file->amode & MPI_MODE_DELETE_ON_CLOSE) != 0) {
        unlink(file->path);
    }
    if (code == MPI_SUCCESS) {
        int system = poise_file_close(file->fd, file->path);
        file->fd = -1;
        code = system < 0 ? file_class(system) : MPI_SUCCESS;
    }
    mpi->call = "MPI_File_close";
    code = code == MPI_SUCCESS ? code : file_fail(mpi, file, code, "");
    file_free(file);
    MPI_Comm_free(&comm);
    *handle = MPI_FILE_NULL;
    return code;
}

int MPI_File_delete(const char *path, MPI_Info info)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_File_delete");
    (void)info;
    if (unlink(path) != 0) {
        return file_fail(mpi, NULL, file_class(errno), path);
    }
    return MPI_SUCCESS;
}

/* ---- sizes -------------------------------------------------------------- */

/* What rank 0 did to the file, for all. */
static int agree(struct poise_mpi_file *file, const char *call, int code)
{
    int later = MPI_Bcast(&code, 1, MPI_INT, 0, vcomm_handle(file->comm));
    file->mpi->call = call;
    code = later != MPI_SUCCESS ? later : code;
    return code == MPI_SUCCESS ? code : file_fail(file->mpi, file, code, "");
}

int MPI_File_set_size(MPI_File file, MPI_Offset bytes)
{
    int code;
    if (!enter("MPI_File_set_size", file, &code)) {
        return code;
    }
    /* What others wrote before is not cut off later. */
    code = MPI_Barrier(vcomm_handle(file->comm));
    if (code == MPI_SUCCESS && file->comm->rank == 0 &&
        ftruncate(file->fd, bytes) != 0) {
        code = file_class(errno);
    }
    return agree(file, "MPI_File_set_size", code);
}

int MPI_File_preallocate(MPI_File file, MPI_Offset bytes)
{
    int code;
    if (!enter("MPI_File_preallocate", file, &code)) {
        return code;
    }
    if (file->comm->rank == 0) {
        int system = bytes > 0 ? posix_fallocate(file->fd, 0, bytes) : 0;
        code = system != 0 ? file_class(system) : MPI_SUCCESS;
    }
    return agree(file, "MPI_File_preallocate", code);
}

static int size_of(const struct poise_mpi_file *file, MPI_Offset *bytes)
{
    struct stat status;
    if (fstat(file->fd, &status) != 0) {
        return file_class(errno);
    }
    *bytes = status.st_size;
    return MPI_SUCCESS;
}

int MPI_File_get_size(MPI_File file, MPI_Offset *bytes)
{
    int code;
    struct vrank_mpi *mpi = enter("MPI_File_get_size", file, &code);
    if (!mpi) {
        return code;
    }
    code = size_of(file, bytes);
    return code == MPI_SUCCESS ? code : file_fail(mpi, file, code, "");
}

int MPI_File_sync(MPI_File file)
{
    int code;
    struct vrank_mpi *mpi = enter("MPI_File_sync", file, &code);
    if (!mpi) {
        return code;
    }
    if (fsync(file->fd) != 0 && errno != EINVAL) {
        return file_fail(mpi, file, file_class(errno), "");
    }
    return MPI_SUCCESS;
}

/* ---- what it is --------------------------------------------------------- */

int MPI_File_get_group(MPI_File file, MPI_Group *group)
{
    int code;
    if (!enter("MPI_File_get_group", file, &code)) {
        return code;
    }
    return MPI_Comm_group(vcomm_handle(file->comm), group);
}

int MPI_File_get_amode(MPI_File file, int *amode)
{
    int code;
    if (!enter("MPI_File_get_amode", file, &code)) {
        return code;
    }
    *amode = file->amode;
    return MPI_SUCCESS;
}

int MPI_File_set_info(MPI_File file, MPI_Info info)
{
    int code;
    (void)info;
    enter("MPI_File_set_info", file, &code);
    return code;
}

int MPI_File_get_info(MPI_File file, MPI_Info *info)
{
    int code;
    if (!enter("MPI_File_get_info", file, &code)) {
        return code;
    }
    return MPI_Info_create(info);
}

int MPI_File_set_atomicity(MPI_File file, int flag)
{
    int code;
    if (!enter("MPI_File_set_atomicity", file, &code)) {
        return code;
    }
    file->atomic = flag != 0;
    return agree(file, "MPI_File_set_atomicity", MPI_SUCCESS);
}

int MPI_File_get_atomicity(MPI_File file, int *flag)
{
    int code;
    if (!enter("MPI_File_get_atomicity", file, &code)) {
        return code;
    }
    *flag = file->atomic;
    return MPI_SUCCESS;
}

int MPI_File_get_type_extent(MPI_File file, MPI_Datatype type, MPI_Aint *extent)
{
    int code;
    struct vrank_mpi *mpi = enter("MPI_File_get_type_extent", file, &code);
    if (!mpi) {
        return code;
    }
    if (!type) {
        return file_fail(mpi, file, MPI_ERR_TYPE, "");
    }
    *extent = type_extent(type);
    return MPI_SUCCESS;
}

/* ---- views -------------------------------------------------------------- */

static int view_check(const struct poise_mpi_file *file, MPI_Offset disp,
                      MPI_Datatype etype, MPI_Datatype filetype,
                      const char *datarep)
{
    bool is_current = disp == MPI_DISPLACEMENT_CURRENT;
    if (disp < 0 && !(is_current && (file->amode & MPI_MODE_SEQUENTIAL) != 0)) {
        return MPI_ERR_ARG;
    }
    if (!etype || !filetype || !etype->committed || !filetype->committed ||
        etype->size == 0 || filetype->size % etype->size != 0 ||
        (filetype->size > 0 && type_extent(filetype) <= 0)) {
        return MPI_ERR_TYPE;
    }
    bool writes = (file->amode & MPI_MODE_RDONLY) == 0;
    if (!file_type_fits(etype, writes) || !file_type_fits(filetype, writes)) {
        return MPI_ERR_IO;
    }
    bool external = datarep && strcmp(datarep, "external32") == 0;
    if (external && (type_external_bytes(etype) != etype->size ||
                     type_external_bytes(filetype) != filetype->size)) {
        /* Places in the file would not be those of the type. */
        return MPI_ERR_UNSUPPORTED_DATAREP;
    }
    return datarep && (external || strcmp(datarep, "native") == 0 ||
                       strcmp(datarep, "internal") == 0)
               ? MPI_SUCCESS
               : MPI_ERR_UNSUPPORTED_DATAREP;
}

int MPI_File_set_view(MPI_File file, MPI_Offset disp, MPI_Datatype etype,
                      MPI_Datatype filetype, const char *datarep, MPI_Info info)
{
    int code;
    struct vrank_mpi *mpi = enter("MPI_File_set_view", file, &code);
    (void)info;
    if (!mpi) {
        return code;
    }
    code = view_check(file, disp, etype, filetype, datarep);
    int worst = code;
    int later = MPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MAX,
                              vcomm_handle(file->comm));
    mpi->call = "MPI_File_set_view";
    code = later != MPI_SUCCESS ? later : worst;
    if (code != MPI_SUCCESS) {
        return file_fail(mpi, file, code,
                         code == MPI_ERR_IO
                             ? "the type of a view goes back, or overlaps"
                             : "");
    }
    MPI_Offset now = 0;
    if (disp == MPI_DISPLACEMENT_CURRENT) {
        code = file_shared_take(file, 0, &now);
        disp = file_place(file, now * (MPI_Offset)file->etype->size);
    }
    type_hold(etype);
    type_hold(filetype);
    type_release(file->etype);
    type_release(file->filetype);
    file->etype = etype;
    file->filetype = filetype;
    file->disp = disp;
    file->external = strcmp(datarep, "external32") == 0;
    file->position = file->shared_start = 0;
    /* All ranks have looked at the shared pointer, if any of them does. */
    if (code == MPI_SUCCESS) {
        code = MPI_Barrier(vcomm_handle(file->comm));
    }
    if (code == MPI_SUCCESS && file->comm->rank == 0) {
        code = file_shared_set(file, 0);
    }
    return agree(file, "MPI_File_set_view", code);
}

int MPI_File_get_view(MPI_File file, MPI_Offset *disp, MPI_Datatype *etype,
                      MPI_Datatype *filetype, char *datarep)
{
    int code;
    if (!enter("MPI_File_get_view", file, &code)) {
        return code;
    }
    *disp = file->disp;
    *etype = type_hold(file->etype);
    *filetype = type_hold(file->filetype);
    snprintf(datarep, MPI_MAX_DATAREP_STRING, "%s",
             file->external ? "external32" : "native");
    return MPI_SUCCESS;
}

int MPI_File_get_byte_offset(MPI_File file, MPI_Offset offset,
                             MPI_Offset *place)
{
    int code;
    struct vrank_mpi *mpi = enter("MPI_File_get_byte_offset", file, &code);
    if (!mpi) {
        return code;
    }
    if (offset < 0) {
        return file_fail(mpi, file, MPI_ERR_ARG, "");
    }
    *place = file_place(file, offset * (MPI_Offset)file->etype->size);
    return MPI_SUCCESS;
}

/* ---- pointers ----------------------------------------------------------- */

/* Where a seek from `now` leads to. */
static int seek_to(const struct poise_mpi_file *file, MPI_Offset offset,
                   int whence, MPI_Offset now, MPI_Offset *out)
{
    MPI_Offset bytes, each = (MPI_Offset)file->etype->size;
    int code = MPI_SUCCESS;
    switch (whence) {
    case MPI_SEEK_SET:
        *out = offset;
        break;
    case MPI_SEEK_CUR:
        *out = now + offset;
        break;
    case MPI_SEEK_END:
        code = size_of(file, &bytes);
        if (code == MPI_SUCCESS) {
            *out = (file_before(file, bytes) + each - 1) / each + offset;
        }
        break;
    default:
        return MPI_ERR_ARG;
    }
    return code == MPI_SUCCESS && *out < 0 ? MPI_ERR_ARG : code;
}

int MPI_File_seek(MPI_File file, MPI_Offset offset, int whence)
{
    int code;
    MPI_Offset to = 0;
    struct vrank_mpi *mpi = enter("MPI_File_seek", file, &code);
    if (!mpi) {
        return code;
    }
    code = seek_to(file, offset, whence, file->position, &to);
    if (code != MPI_SUCCESS) {
        return file_fail(mpi, file, code, "");
    }
    file->position = to;
    return MPI_SUCCESS;
}

int MPI_File_get_position(MPI_File file, MPI_Offset *offset)
{
    int code;
    if (!enter("MPI_File_get_position", file, &code)) {
        return code;
    }
    *offset = file->position;
    return MPI_SUCCESS;
}

int MPI_File_seek_shared(MPI_File file, MPI_Offset offset, int whence)
{
    int code;
    MPI_Offset now = 0, to = 0;
    if (!enter("MPI_File_seek_shared", file, &code)) {
        return code;
    }
    code = MPI_Barrier(vcomm_handle(file->comm));
    if (code == MPI_SUCCESS && file->comm->rank == 0) {
        code = file_shared_take(file, 0, &now);
        code = code != MPI_SUCCESS ? code
                                   : seek_to(file, offset, whence, now, &to);
        code = code != MPI_SUCCESS ? code : file_shared_set(file, to);
    }
    return agree(file, "MPI_File_seek_shared", code);
}

int MPI_File_get_position_shared(MPI_File file, MPI_Offset *offset)
{
    int code;
    struct vrank_mpi *mpi = enter("MPI_File_get_position_shared", file, &code);
    if (!mpi) {
        return code;
    }
    code = file_shared_take(file, 0, offset);
    return code == MPI_SUCCESS ? code : file_fail(mpi, file, code, "");
}
