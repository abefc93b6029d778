/*
 * How every output file is finished: written beside its place, and put there
 * when it is whole.
 *
 * Whom a path leads to is asked of the kernel once, by opening it: that follows
 * links under the system's rules against links that others planted. The name
 * of the file that was opened is found afterwards, and believed only if it
 * leads to that very file. So what is replaced is what was opened.
 *
 * Nobody sees more than before: the temporary file of one that is replaced is
 * its maker's alone until it has its owner; then it gets the access list, then
 * the mode. A new file is made with its mode, by open(2), so that the umask or
 * the folder's default access list are applied by the kernel.
 *
 * A temporary file that has a name is locked by flock(2) until its process
 * ends, however that ends. Names are tried in a fixed order, so the next output
 * at the same path comes by what a killed one left: it can be locked, and is
 * removed. Who makes a file and then finds that it has no name any more was
 * taken for dead between making and locking it, and takes the next name.
 */
#include "file.h"

#include <poise/core.h>
#include <poise/file.h>
#include <poise/output.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NAME_TRIES = 16,
    NAME_SLOTS = 8,   /* of those, names that the next output at a path finds */
    NAME_BYTES = 200, /* kept of a name in the temporary one */
    LINKS_MOST = 40,  /* as the kernel's */
    COPY_BYTES = 1 << 20
};

struct poise_output {
    char *path;      /**< as the caller calls it */
    char *target;    /**< what is made or replaced; NULL: nothing is */
    char *folder;    /**< of the target */
    char *temporary; /**< NULL: the file has no name */
    int fd;          /**< the temporary file; where `straight`, a duplicate */
    int there;       /**< what is there already, or -1 */
    bool in_place;   /**< copy into it */
    bool straight;   /**< `fd` is what is there */
    uint64_t tag;    /**< of the temporary name; 0: one that no file has */
};

/* ---- where it goes ------------------------------------------------------ */

static char *copy_text(const char *text, size_t len)
{
    char *copy = poise_alloc(len + 1, 1);
    if (copy != NULL) {
        memcpy(copy, text, len);
    }
    return copy;
}

static int use_descriptor(struct poise_output *output, int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) {
        return poise_error_set(EBADF, "write to", output->path,
                               flags < 0 ? "it is not open"
                                         : "it is open for reading only");
    }
    output->there = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return output->there < 0
               ? poise_error_set(errno, "write to", output->path, NULL)
               : 0;
}

/* Of a link to what is not there yet: where that would be. The kernel has
 * followed it just before, so its rules allow that. */
static int follow_dangling(const char *path, char **out)
{
    struct poise_buf at = {0};
    char to[PATH_MAX];
    poise_buf_puts(&at, path);
    for (int i = 0; i < LINKS_MOST && at.error == 0; i++) {
        ssize_t len = readlink(poise_buf_str(&at), to, sizeof to);
        if (len < 0 || (size_t)len == sizeof to) {
            *out = at.error == 0 ? copy_text(at.data, at.len) : NULL;
            poise_buf_free(&at);
            return *out != NULL ? 0 : -ENOMEM;
        }
        const char *slash = strrchr(poise_buf_str(&at), '/');
        at.len =
            to[0] == '/' || slash == NULL ? 0 : (size_t)(slash - at.data) + 1;
        poise_buf_append(&at, to, (size_t)len);
    }
    int code = at.error != 0 ? at.error : -ELOOP;
    poise_buf_free(&at);
    return code == -ELOOP ? poise_error_set(ELOOP, "open", path, NULL) : code;
}

/* The name of the open file without links; none if it cannot be told. */
static int follow_open(struct poise_output *output, const struct stat *old)
{
    struct stat now;
    char real[PATH_MAX];
    if (realpath(output->path, real) == NULL || lstat(real, &now) != 0 ||
        now.st_dev != old->st_dev || now.st_ino != old->st_ino) {
        output->in_place = true;
        return 0;
    }
    output->target = copy_text(real, strlen(real));
    return output->target != NULL ? 0 : -ENOMEM;
}

static int set_folder(struct poise_output *output)
{
    if (output->target == NULL) {
        return 0;
    }
    const char *slash = strrchr(output->target, '/');
    output->folder =
        slash == NULL
            ? copy_text(".", 1)
            : copy_text(output->target, (size_t)(slash - output->target) + 1);
    return output->folder != NULL ? 0 : -ENOMEM;
}

/* Open what is at the path, if anything is. */
static int find_place(struct poise_output *output)
{
    struct stat old;
    int fd = poise_file_named_descriptor(output->path);
    if (fd >= 0) {
        return use_descriptor(output, fd);
    }
    int code = stat(output->path, &old) == 0 ? 0 : -errno;
    if (code == -ENOENT) {
        code = follow_dangling(output->path, &output->target);
        return code < 0 ? code : set_folder(output);
    }
    if (code < 0) {
        return poise_error_set(-code, "open", output->path, NULL);
    }
    fd = poise_file_open(AT_FDCWD, output->path, O_WRONLY | O_NOCTTY, 0);
    if (fd < 0) {
        return fd;
    }
    output->there = fd;
    if (fstat(fd, &old) != 0) {
        return poise_error_set(errno, "look at", output->path, NULL);
    }
    if (!S_ISREG(old.st_mode)) {
        return 0;
    }
    output->in_place = old.st_nlink != 1;
    code = follow_open(output, &old);
    return code < 0 ? code : set_folder(output);
}

/* Whether the folder in which `path` lies takes new files. */
static int check_folder(const char *path)
{
    struct poise_output output = {.target = (char *)path};
    int code = set_folder(&output);
    if (code == 0 &&
        faccessat(AT_FDCWD, output.folder, W_OK | X_OK, AT_EACCESS) != 0) {
        code = -errno;
    }
    free(output.folder);
    return code;
}

/* What is not there yet. */
static int check_new(const char *path)
{
    char *target = NULL;
    int code = follow_dangling(path, &target);
    if (code == 0) {
        const char *slash = strrchr(target, '/');
        code =
            slash != NULL && slash[1] == '\0' ? -EISDIR : check_folder(target);
    }
    free(target);
    return code;
}

static int check_descriptor(const char *path, int number)
{
    struct poise_output output = {.path = (char *)path};
    int code = use_descriptor(&output, number);
    if (code == 0) {
        close(output.there);
    }
    return code;
}

int poise_output_check(const char *path, bool *beside)
{
    struct stat st;
    int number = poise_file_named_descriptor(path);
    if (number >= 0) {
        *beside = false;
        return check_descriptor(path, number);
    }
    int code = stat(path, &st) == 0 ? 0 : -errno;
    bool regular = code < 0 || S_ISREG(st.st_mode);
    if (code == -ENOENT) {
        code = check_new(path);
    } else if (code == 0) {
        code = S_ISDIR(st.st_mode)                                ? -EISDIR
               : faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0 ? -errno
                                                                  : 0;
    }
    if (code < 0) {
        return poise_error_set(-code, "write", path, NULL);
    }
    *beside = regular && check_folder(path) == 0;
    return 0;
}

/* ---- the temporary file ------------------------------------------------- */

/* Whom an input does not let read it the output does not, either. */
static mode_t mode_of_inputs(const struct poise_output_options *options,
                             gid_t group)
{
    mode_t mode = 0666;
    for (size_t i = 0; i < 2 + options->more_count; i++) {
        const char *input = i < 2 ? options->inputs[i] : options->more[i - 2];
        struct stat in;
        if (input == NULL || stat(input, &in) != 0 || !S_ISREG(in.st_mode)) {
            continue;
        }
        mode_t allowed = in.st_mode | S_IRUSR | S_IWUSR;
        if (output_has_acl(input)) {
            allowed &= S_IRUSR | S_IWUSR;
        } else if (in.st_gid != group) {
            allowed &= ~(mode_t)S_IRWXG | (in.st_mode & S_IRWXO) << 3;
        }
        mode &= allowed;
    }
    return mode;
}

static char *temporary_name(const char *path, uint64_t tag)
{
    const char *slash = strrchr(path, '/');
    size_t name_at = slash == NULL ? 0 : (size_t)(slash - path) + 1;
    size_t name_len = strlen(path + name_at);
    struct poise_buf name = {0};
    poise_buf_append(&name, path,
                     name_at + (name_len < NAME_BYTES ? name_len : NAME_BYTES));
    poise_buf_printf(&name, ".%016" PRIx64 ".tmp",
                     tag ? tag : poise_rng_next(poise_rng_current()));
    poise_buf_str(&name);
    if (name.error != 0) {
        poise_buf_free(&name);
    }
    return name.data;
}

/* Where a killed process left its file under `name`: remove that. */
static void remove_dead(const char *name)
{
    struct stat opened, named;
    int fd =
        open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    if (fstat(fd, &opened) == 0 && S_ISREG(opened.st_mode) &&
        opened.st_uid == geteuid() && opened.st_nlink == 1 &&
        flock(fd, LOCK_EX | LOCK_NB) == 0 && lstat(name, &named) == 0 &&
        named.st_dev == opened.st_dev && named.st_ino == opened.st_ino) {
        unlink(name);
    }
    close(fd);
}

/* Lock a file that was just made, so that it is nobody's dead one. False: it
 * was taken for one before. */
static bool hold(int fd)
{
    struct stat st;
    return (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
           (fstat(fd, &st) != 0 || st.st_nlink > 0);
}

/* The name of the `i`-th try, which nobody has who is dead. */
static char *next_name(const char *beside, uint64_t tag, int i)
{
    char *name = temporary_name(beside, tag != 0         ? tag
                                        : i < NAME_SLOTS ? (uint64_t)i + 1
                                                         : 0);
    if (name != NULL && tag != 0) {
        unlink(name);
    } else if (name != NULL && i < NAME_SLOTS) {
        remove_dead(name);
    }
    return name;
}

static int open_named(struct poise_output *output, const char *beside,
                      mode_t mode, uint64_t tag)
{
    int code = -EEXIST;
    for (int i = 0; i < NAME_TRIES && code == -EEXIST; i++) {
        char *name = next_name(beside, tag, i);
        if (name == NULL) {
            return -ENOMEM;
        }
        code = poise_file_open(AT_FDCWD, name, O_RDWR | O_CREAT | O_EXCL, mode);
        if (code >= 0 && tag == 0 && !hold(code)) {
            close(code);
            code = -EEXIST;
        }
        free(output->temporary);
        output->temporary = code >= 0 ? name : NULL;
        if (code < 0) {
            free(name);
        }
    }
    return code;
}

/* A link from /proc is what gives such a file a name. */
static int open_nameless(struct poise_output *output, mode_t mode)
{
    if (access("/proc/self/fd", X_OK) != 0) {
        return -EOPNOTSUPP;
    }
    return poise_file_open(AT_FDCWD, output->folder, O_RDWR | O_TMPFILE, mode);
}

/* Anywhere: what is written will be copied. */
static int open_elsewhere(struct poise_output *output,
                          const struct poise_output_options *options)
{
    struct poise_buf beside = {0};
    free(output->folder);
    output->folder = NULL;
    output->in_place = output->target != NULL;
    if (!options->named) {
        return poise_file_nameless(NULL, 0);
    }
    poise_buf_printf(&beside, "%s/poise", poise_file_temporary_folder());
    int code = beside.error != 0 ? beside.error
                                 : open_named(output, poise_buf_str(&beside),
                                              0600, options->tag);
    poise_buf_free(&beside);
    return code;
}

static int open_beside(struct poise_output *output,
                       const struct poise_output_options *options)
{
    bool is_new = output->there < 0;
    mode_t mode = is_new ? mode_of_inputs(options, getegid()) : 0600;
    int fd = options->named ? -EOPNOTSUPP : open_nameless(output, mode);
    if (fd == -EOPNOTSUPP || fd == -EISDIR || fd == -EINVAL) {
        /* Another process may write such a file; only who says that others
         * know its name has it to itself. */
        fd = open_named(output, output->target, mode,
                        options->named ? options->tag : 0);
    }
    if (fd < 0) {
        return poise_error_set(-fd, "open", output->path, NULL);
    }
    struct stat made;
    if (is_new && fstat(fd, &made) == 0 && made.st_gid != getegid()) {
        mode = mode_of_inputs(options, made.st_gid) & made.st_mode;
        if (mode != (made.st_mode & 0777)) {
            fchmod(fd, mode);
        }
    }
    return fd;
}

static int open_temporary(struct poise_output *output,
                          const struct poise_output_options *options)
{
    int fd = -EACCES;
    if (output->target == NULL && options->sequential && !output->in_place) {
        output->straight = true;
        fd = fcntl(output->there, F_DUPFD_CLOEXEC, 0);
        return fd < 0 ? poise_error_set(errno, "open", output->path, NULL) : fd;
    }
    if (output->target != NULL) {
        fd = open_beside(output, options);
    }
    if (output->there >= 0 && (fd == -EACCES || fd == -EPERM)) {
        poise_error_clear();
        fd = open_elsewhere(output, options);
    }
    return fd;
}

static void output_free(struct poise_output *output)
{
    if (output->fd >= 0) {
        close(output->fd);
    }
    if (output->there >= 0) {
        close(output->there);
    }
    free(output->temporary);
    free(output->folder);
    free(output->target);
    free(output->path);
    free(output);
}

int poise_output_open(const char *path,
                      const struct poise_output_options *options,
                      struct poise_output **out)
{
    static const struct poise_output_options none = {0};
    struct poise_output *output = poise_alloc(1, sizeof *output);
    if (output == NULL) {
        return -ENOMEM;
    }
    output->fd = output->there = -1;
    output->tag = options != NULL ? options->tag : 0;
    output->path = copy_text(path, strlen(path));
    int code = output->path != NULL ? find_place(output) : -ENOMEM;
    if (code == 0) {
        code = open_temporary(output, options != NULL ? options : &none);
    }
    if (code < 0) {
        poise_output_abort(output);
        return code;
    }
    output->fd = code;
    *out = output;
    return 0;
}

int poise_output_fd(const struct poise_output *output)
{
    return output->fd;
}

const char *poise_output_name(const struct poise_output *output)
{
    return output->temporary;
}

const char *poise_output_folder(const struct poise_output *output)
{
    return output->folder;
}

void poise_output_abort(struct poise_output *output)
{
    if (output == NULL) {
        return;
    }
    if (output->temporary != NULL) {
        unlink(output->temporary);
    }
    output_free(output);
}

/* ---- the end ------------------------------------------------------------ */

/* All the room for a copy before the first byte is overwritten: a disk that is
 * too full shows here, while the old file is whole. */
static int reserve_room(const struct poise_output *output, off_t bytes)
{
    struct stat old;
    if (fstat(output->there, &old) != 0) {
        return poise_error_set(errno, "look at", output->path, NULL);
    }
    if (bytes <= 0 ||
        fallocate(output->there, FALLOC_FL_KEEP_SIZE, 0, bytes) == 0 ||
        (errno != ENOSPC && errno != EDQUOT && errno != EFBIG)) {
        return 0;
    }
    int code = errno;
    if (ftruncate(output->there, old.st_size) != 0) {
        code = errno;
    }
    return poise_error_set(code, "make room for", output->path, NULL);
}

static int copy_bytes(const struct poise_output *output, off_t bytes)
{
    char *buffer = poise_alloc(COPY_BYTES, 1);
    int code = buffer != NULL ? 0 : -ENOMEM;
    for (off_t at = 0; at < bytes && code == 0;) {
        ssize_t len = poise_file_pread(output->fd, buffer, COPY_BYTES,
                                       (uint64_t)at, output->path);
        code = len > 0   ? 0
               : len < 0 ? (int)len
                         : poise_error_set(EIO, "read back", output->path,
                                           "what was written is cut short");
        if (code == 0) {
            code = output->in_place
                       ? poise_file_pwrite(output->there, buffer, (size_t)len,
                                           (uint64_t)at, output->path)
                       : poise_file_write(output->there, buffer, (size_t)len,
                                          output->path);
        }
        at += len;
    }
    free(buffer);
    return code;
}

/* Into what is there. */
static int copy_over(struct poise_output *output, bool sync)
{
    struct stat made;
    int flags = fcntl(output->fd, F_GETFL);
    /* Past the page cache only aligned buffers are read. */
    if (flags < 0 || fcntl(output->fd, F_SETFL, flags & ~O_DIRECT) != 0 ||
        fstat(output->fd, &made) != 0) {
        return poise_error_set(errno, "read back", output->path, NULL);
    }
    int code = output->in_place ? reserve_room(output, made.st_size) : 0;
    if (code == 0) {
        code = copy_bytes(output, made.st_size);
    }
    if (code == 0 && output->in_place &&
        ftruncate(output->there, made.st_size) != 0) {
        code = poise_error_set(errno, "set the size of", output->path, NULL);
    }
    return code == 0 && sync && output->in_place
               ? poise_file_sync(output->there, output->path)
               : code;
}

static int link_as(const struct poise_output *output, const char *name)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", output->fd);
    return linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0
               ? 0
               : -errno;
}

/* Give the file without a name one: its own, where nobody has that. */
static int make_name(struct poise_output *output, bool *is_target)
{
    int code = output->there < 0 ? link_as(output, output->target) : -EEXIST;
    *is_target = code == 0;
    if (code == -EEXIST && output->tag == 0) {
        flock(output->fd, LOCK_EX | LOCK_NB);
    }
    for (int i = 0; i < NAME_TRIES && code == -EEXIST; i++) {
        free(output->temporary);
        output->temporary = next_name(output->target, output->tag, i);
        code = output->temporary != NULL ? link_as(output, output->temporary)
                                         : -ENOMEM;
    }
    if (code < 0) {
        free(output->temporary);
        output->temporary = NULL;
    }
    return code;
}

/* 0, or a negative errno that is not recorded. */
static int move_to_target(struct poise_output *output)
{
    bool is_target = false;
    int code = -poise_fault_check(POISE_FAULT_RENAME);
    if (code == 0 && output->temporary == NULL) {
        code = make_name(output, &is_target);
    }
    if (code == 0 && !is_target) {
        code = rename(output->temporary, output->target) == 0 ? 0 : -errno;
    }
    if (code == 0) {
        free(output->temporary);
        output->temporary = NULL;
    }
    return code;
}

/* Whether a rename that failed with `code` leaves a copy to be tried: the old
 * file is a mount point, or somebody else's in a folder where only owners
 * rename. */
static bool can_be_copied(const struct poise_output *output, int code)
{
    return output->there >= 0 &&
           (code == -EACCES || code == -EPERM || code == -EBUSY);
}

static int put_in_place(struct poise_output *output, bool sync)
{
    struct stat old;
    if (output->target == NULL || output->in_place ||
        (output->there >= 0 &&
         (fstat(output->there, &old) != 0 || old.st_nlink > 1 ||
          output_take_over(output->there, output->fd) < 0))) {
        output->in_place |= output->target != NULL;
        return copy_over(output, sync);
    }
    int code = sync ? poise_file_sync(output->fd, output->path) : 0;
    if (code < 0) {
        return code;
    }
    code = move_to_target(output);
    if (code == 0) {
        return sync ? file_sync_parent(output->target) : 0;
    }
    if (can_be_copied(output, code)) {
        output->in_place = true;
        return copy_over(output, sync);
    }
    return poise_error_set(-code, "rename to", output->path, NULL);
}

int poise_output_commit(struct poise_output *output, bool sync)
{
    int code = output->straight ? 0 : put_in_place(output, sync);
    int *last = output->there >= 0 ? &output->there : &output->fd;
    int fd = *last;
    *last = -1;
    /* What a network's file system kept back shows when it is closed. */
    int closed = poise_file_close(fd, output->path);
    poise_output_abort(output);
    return code < 0 ? code : closed;
}
