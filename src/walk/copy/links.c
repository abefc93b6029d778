/*
 * Files with several names, once each, by whichever worker of whichever rank
 * meets them first.
 *
 * A folder at the target has two names for each such file, made of its device
 * and inode: `c-DEV-INO`, a symbolic link that only one can make, claims it;
 * `DEV-INO` is a further name of the copy once that is whole. Who meets another
 * name of the file links it to that; or, while it is not there yet, notes it in
 * a file of this rank's, without a name, to be linked after the walk. So nobody
 * waits, and memory does not grow.
 */
#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { DEFERRED_BYTES = 1 << 16, LINK_NAME = 48 };

void copy_links_name(const struct copy *copy, char out[40])
{
    snprintf(out, 40, POISE_WALK_TEMPORARY "%016llx",
             (unsigned long long)copy->plan.id);
}

static int open_folder(struct copy *copy)
{
    char name[40];
    int home =
        poise_file_open(AT_FDCWD, copy->plan.home, O_PATH | O_DIRECTORY, 0);
    int code = home;

    copy_links_name(copy, name);
    if (home < 0) {
        return home;
    }
    if (mkdirat(home, name, 0700) != 0 && errno != EEXIST) {
        code =
            poise_error_set(errno, "make a folder in", copy->plan.home, NULL);
    } else {
        code =
            poise_file_open(home, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
    }
    close(home);
    return code;
}

/* The folder's descriptor, opened once. */
static int folder(struct copy *copy)
{
    int fd;

    pthread_mutex_lock(&copy->lock);
    if (copy->links_fd < 0) {
        copy->links_fd = open_folder(copy);
    }
    fd = copy->links_fd;
    pthread_mutex_unlock(&copy->lock);
    return fd;
}

static void name_of(const struct statx *stx, char out[LINK_NAME])
{
    snprintf(
        out, LINK_NAME, "c-%llx-%llx",
        (unsigned long long)makedev(stx->stx_dev_major, stx->stx_dev_minor),
        (unsigned long long)stx->stx_ino);
}

/* ---- notes --------------------------------------------------------------- */

static int flush(struct copy *copy)
{
    int code;

    if (copy->deferred_fd < 0) {
        copy->deferred_fd = poise_file_nameless(NULL, 0);
    }
    code = copy->deferred_fd < 0
               ? copy->deferred_fd
               : poise_file_write(copy->deferred_fd, copy->deferred.data,
                                  copy->deferred.len, "notes of links");
    poise_buf_reset(&copy->deferred);
    return code;
}

/* A note: its length, the root, the folder's name of it, the path. */
static int defer(struct copy_worker *w, const struct poise_walk_entry *entry,
                 const char *link)
{
    struct copy *copy = w->copy;
    struct poise_buf note = {0}, path = {0};
    int code = copy_relative_path(copy, entry, &path);

    poise_buf_varint(&note, entry->root);
    poise_buf_blob(&note, link, strlen(link));
    poise_buf_blob(&note, path.data, path.len);
    code = code < 0 ? code : path.error ? path.error : note.error;
    if (code == 0) {
        pthread_mutex_lock(&copy->lock);
        poise_buf_u64(&copy->deferred, note.len);
        code = poise_buf_append(&copy->deferred, note.data, note.len);
        if (code == 0 && copy->deferred.len > DEFERRED_BYTES) {
            code = flush(copy);
        }
        pthread_mutex_unlock(&copy->lock);
    }
    poise_buf_free(&note);
    poise_buf_free(&path);
    return code;
}

/* ---- during the walk ----------------------------------------------------- */

int copy_link(struct copy_worker *w, struct poise_walk_entry *entry,
              const struct copy_place *place, const struct statx *stx)
{
    struct entry_taken taken = {.ask = copy_ask, .arg = w};
    char claim[LINK_NAME];
    const char *link = claim + 2;
    int fd = folder(w->copy), code;

    if (fd < 0) {
        return fd;
    }
    name_of(stx, claim);
    code = entry_make_link(fd, link, place->fd, place->name, &taken);
    if (code == -ENOENT) {
        if (symlinkat("claimed", fd, claim) == 0) {
            return COPY_LINK_FIRST;
        }
        if (errno != EEXIST) {
            return poise_error_set(errno, "claim", entry->name, NULL);
        }
        code = defer(w, entry, link);
        return code < 0 ? code : COPY_LINK_LATER;
    }
    if (code < 0) {
        return code;
    }
    w->counts.hard_links += code > 0;
    code = code > 0 ? copy_say(w, POISE_COPY_LINKED, entry, NULL) : 0;
    return code < 0 ? code : COPY_LINK_DONE;
}

int copy_link_add(struct copy_worker *w, const struct copy_place *place,
                  const struct statx *stx)
{
    char claim[LINK_NAME];
    int fd = folder(w->copy);

    if (fd < 0) {
        return fd;
    }
    name_of(stx, claim);
    if (linkat(place->fd, place->name, fd, claim + 2, 0) != 0 &&
        errno != EEXIST) {
        return poise_error_set(errno, "link", place->name, NULL);
    }
    return 0;
}

/* ---- after it ------------------------------------------------------------ */

static int finish_ask(int dirfd, const char *name, const struct stat *there,
                      void *arg)
{
    (void)dirfd;
    (void)name;
    (void)arg;
    return S_ISDIR(there->st_mode) ? -EISDIR : 0;
}

/* The directory of a path below one that is named, and its last component. */
static int open_dir_of(const char *root, const char *path, size_t len,
                       const char **name)
{
    const char *slash = memrchr(path, '/', len);
    int fd = poise_file_open(AT_FDCWD, root, O_PATH | O_DIRECTORY, 0), below;

    if (fd < 0) {
        return fd;
    }
    *name = slash ? slash + 1 : path;
    below = copy_open_below(fd, path, slash ? (size_t)(slash - path) : 0);
    close(fd);
    return below < 0 ? poise_error_set(-below, "open directory", root, NULL)
                     : below;
}

/* The directory has its source's times again. */
static void set_times_again(const char *source, const char *path, size_t len,
                            int dirfd)
{
    const char *name;
    struct stat st;
    int from = open_dir_of(source, path, len, &name);

    if (from >= 0 && fstat(from, &st) == 0) {
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st.st_mtim};

        (void)utimensat(dirfd, ".", times, 0);
    }
    if (from >= 0) {
        close(from);
    }
}

static int read_note(const struct copy *copy, struct poise_reader *in,
                     struct copy_note *note)
{
    size_t link_len = 0, len = 0;
    const char *link, *path;

    note->root = poise_reader_varint(in);
    link = poise_reader_blob(in, &link_len);
    path = poise_reader_blob(in, &len);
    if (in->error || note->root >= copy->plan.count) {
        return poise_error_set(EBADMSG, "read", "notes of links", NULL);
    }
    note->link = strndup(link, link_len);
    note->path = strndup(path, len);
    return note->link && note->path ? 0 : -ENOMEM;
}

static int link_failed(const struct copy *copy, const struct copy_note *note,
                       int code)
{
    struct poise_buf path = {0};

    poise_buf_printf(&path, "%s%s%s", copy->plan.targets[note->root],
                     note->path[0] ? "/" : "", note->path);
    poise_error_set(-code, "link", poise_buf_str(&path),
                    code == -ENOENT ? "the file could not be copied under "
                                      "another of its names"
                                    : NULL);
    poise_buf_free(&path);
    return code;
}

static int link_one(struct copy *copy, const struct copy_note *note)
{
    struct entry_taken taken = {.ask = finish_ask};
    const char *place = copy->plan.places[note->root], *name = place;
    size_t len = strlen(note->path);
    int dirfd = len > 0 ? open_dir_of(place, note->path, len, &name) : AT_FDCWD;
    int code = dirfd;

    if (dirfd >= 0 || dirfd == AT_FDCWD) {
        code = entry_make_link(copy->links_fd, note->link, dirfd, name, &taken);
        if (code < 0) {
            code = link_failed(copy, note, code);
        }
        copy->late.hard_links += code > 0;
    }
    if (code > 0 && len > 0) {
        set_times_again(copy->options->walk.roots[note->root], note->path, len,
                        dirfd);
    }
    if (dirfd >= 0) {
        close(dirfd);
    }
    return code;
}

static void fail_late(struct copy *copy)
{
    copy->late.failed++;
    copy_report(NULL, poise_error_last(), copy);
}

int copy_links_each(struct copy *copy,
                    int (*each)(struct copy *copy, const struct copy_note *note,
                                void *arg),
                    void *arg)
{
    struct poise_buf bytes = {0};
    int code = copy->deferred.len > 0 ? flush(copy) : 0;

    while (code == 0 && copy->deferred_fd >= 0) {
        unsigned char head[8];
        ssize_t got = poise_file_pread(copy->deferred_fd, head, sizeof head,
                                       copy->deferred_at, "notes of links");
        size_t len = got == sizeof head ? (size_t)poise_get_u64(head) : 0;
        struct copy_note note = {0};
        struct poise_reader in;
        char *room;

        if (got <= 0) {
            code = (int)got;
            break;
        }
        poise_buf_reset(&bytes);
        room = poise_buf_reserve(&bytes, len);
        got = room ? poise_file_pread(copy->deferred_fd, room, len,
                                      copy->deferred_at + sizeof head,
                                      "notes of links")
                   : -ENOMEM;
        in = poise_reader_of(room, got < 0 ? 0 : len);
        code = got < 0 ? (int)got : read_note(copy, &in, &note);
        code = code < 0 ? code : each(copy, &note, arg);
        free(note.link);
        free(note.path);
        copy->deferred_at += code == 0 ? sizeof head + len : 0;
    }
    poise_buf_free(&bytes);
    return code;
}

static int link_noted(struct copy *copy, const struct copy_note *note,
                      void *arg)
{
    const volatile int *interrupt = copy->options->walk.pool.interrupt;

    (void)arg;
    if (interrupt && *interrupt) {
        return -EINTR;
    }
    if (link_one(copy, note) < 0) {
        fail_late(copy);
    }
    return 0;
}

/* The folder goes, and the directory that it was in has its times again. */
static int remove_folder(struct copy *copy)
{
    int home =
        poise_file_open(AT_FDCWD, copy->plan.home, O_PATH | O_DIRECTORY, 0);
    struct stat before;
    char name[40];
    int code = home;

    copy_links_name(copy, name);
    if (home >= 0 && fstat(home, &before) == 0) {
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, before.st_mtim};

        code = poise_walk_remove(home, name);
        (void)utimensat(home, ".", times, 0);
    }
    if (home >= 0) {
        close(home);
    }
    return code;
}

static int agree(const struct copy *copy, int code)
{
    return copy->world ? poise_world_agree(copy->world, code) : code;
}

int copy_links_finish(struct copy *copy, bool whole)
{
    uint64_t used = copy->links_fd >= 0;
    int code = agree(copy, whole ? copy_links_each(copy, link_noted, NULL) : 0);

    if (copy->world) {
        int known = poise_world_reduce(copy->world, POISE_MAX, &used, 1);

        code = code == 0 ? known : code;
    }
    if (used && copy->rank == 0) {
        int removed = remove_folder(copy);

        code = code == 0 ? removed : code;
    }
    return agree(copy, code);
}
