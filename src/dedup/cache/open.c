/*
 * How a cache comes to be and goes: what its folder holds is listed, and read
 * where no snapshot describes it.
 */
#include "sharing.h"

#include <poise/store.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CONTAINER_BYTES = 2 << 20,
    MEMORY_LEAST = 1 << 20,
    WAIT_MS = 10000, /* a server may have to read its containers first */
};
static const uint64_t limit_default = UINT64_C(10) << 30;
static const uint64_t memory_default = UINT64_C(64) << 20;

/* ---- opening and closing ------------------------------------------------ */

static int by_id(const void *a, const void *b)
{
    const struct dedup_container *const *x = a, *const *y = b;

    return ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);
}

/* Which containers there are. */
static int list(struct poise_dedup_store *store)
{
    int fd = poise_file_open(store->dirfd, ".",
                             O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    int code = 0;

    if (!dir) {
        return fd < 0 ? fd
                      : (close(fd), poise_error_set(errno, "read directory",
                                                    store->path, NULL));
    }
    while (code == 0 && (entry = readdir(dir)) != NULL) {
        struct dedup_container *container;
        char name[DEDUP_NAME_BYTES];
        struct stat st;
        uint64_t id = strtoull(entry->d_name, NULL, 16);
        dedup_container_name(id, name);
        if (id >> CACHE_ID_BITS != 0 || strcmp(name, entry->d_name) != 0) {
            continue;
        }
        code = dedup_store_refuse_link(store, name);
        if (code < 0 ||
            fstatat(store->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode)) {
            continue;
        }
        if (store->open && store->open->id == id) {
            continue;
        }
        container = dedup_store_append(store, id);
        if (container) {
            container->bytes = (uint64_t)st.st_size;
            store->info.bytes += container->bytes;
        }
        code = container ? 0 : -ENOMEM;
    }
    closedir(dir);
    if (store->count > 0) {
        qsort(store->containers, store->count, sizeof *store->containers,
              by_id);
    }
    return code;
}

/* Whether a process that lives still writes into it. */
static bool is_written(const struct poise_dedup_store *store, uint64_t id)
{
    int fd, code = dedup_container_lock(store->dirfd, id, false, &fd);

    if (code == 0) {
        close(fd);
    }
    return code == -EBUSY;
}

/* One that is there, or the next if this one is not. */
static int read_container(struct poise_dedup_store *store, size_t *i)
{
    struct dedup_container *container = store->containers[*i];
    bool is_last = *i + 1 == store->count, known = container->count > 0;
    bool is_alone = !store->serves && !store->client;
    int code = 1;

    if ((known && (!is_alone || !is_last)) || container == store->open) {
        (*i)++;
        return 0;
    }
    code = dedup_store_load(store, container);
    if (code > 0 && !known) {
        dedup_store_learn(store, container, container->body);
    }
    if (code < 0) {
        return code;
    }
    if (*i == store->count || store->containers[*i] != container) {
        return 0; /* its file is gone */
    }
    if (container->body->file_bytes == 0 &&
        !(!is_alone && is_written(store, container->id))) {
        dedup_store_remove(store, container);
        return 0;
    }
    if (is_last && is_alone) {
        store->open = container;
    }
    (*i)++;
    return 0;
}

static int read_all(struct poise_dedup_store *store)
{
    int code = list(store);

    if (code == 0) {
        code = dedup_snapshot_load(store);
    }
    /* Read the containers that the snapshot does not know; go on with the last
     * one if there is room. */
    for (size_t i = 0; i < store->count && code == 0;) {
        code = read_container(store, &i);
    }
    return code;
}

int dedup_store_read_folder(struct poise_dedup_store *store)
{
    int code = dedup_identity_open(store);

    return code < 0 ? code : read_all(store);
}

int dedup_store_read_alone(struct poise_dedup_store *store)
{
    struct poise_dedup_store_info was = store->info;
    struct dedup_container *open = store->open;
    int code;

    for (size_t i = store->count; i-- > 0;) {
        if (store->containers[i] != open) {
            dedup_store_remove(store, store->containers[i]);
        }
    }
    dedup_index_free(&store->index);
    code = dedup_index_create(&store->index, store->index_bytes);
    if (code == 0) {
        code = dedup_identity_open(store);
    }
    if (code == 0 && was.bits != 0 &&
        (was.id != store->info.id || was.bits != store->info.bits)) {
        code = poise_error_set(ESTALE, "share a cache", store->path,
                               "it is another one now");
    }
    if (code == 0) {
        code = read_all(store);
    }
    if (code == 0 && open) {
        dedup_store_learn(store, open, open->body);
    }
    return code;
}

int dedup_store_refuse_link(const struct poise_dedup_store *store,
                            const char *name)
{
    struct stat st;

    return fstatat(store->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                   S_ISLNK(st.st_mode)
               ? poise_error_set(ELOOP, "open cache", store->path,
                                 "its file '%s' is a symbolic link", name)
               : 0;
}

int dedup_store_enter(struct poise_dedup_store *store, const char *path)
{
    int code;

    store->path = strdup(path);
    if (!store->path) {
        return poise_error_set(ENOMEM, "open cache", path, NULL);
    }
    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        return poise_error_set(errno, "make directory", path, NULL);
    }
    store->dirfd =
        poise_file_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (store->dirfd < 0) {
        return store->dirfd;
    }
    code = dedup_store_refuse_link(store, "lock");
    if (code < 0) {
        return code;
    }
    store->lockfd = poise_file_open(
        store->dirfd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return store->lockfd < 0 ? store->lockfd : 0;
}

int dedup_store_lock(struct poise_dedup_store *store)
{
    if (flock(store->lockfd, LOCK_EX | LOCK_NB) < 0) {
        return poise_error_set(
            errno == EWOULDBLOCK ? EBUSY : errno, "open cache", store->path,
            errno == EWOULDBLOCK ? "another process has it open" : NULL);
    }
    /* Others learn from it whether it is worth waiting for an answer. */
    if (ftruncate(store->lockfd, store->serves ? 1 : 0) < 0) {
        return poise_error_set(errno, "open cache", store->path, NULL);
    }
    return 0;
}

static int open_folder(struct poise_dedup_store *store, const char *path)
{
    int code = dedup_store_enter(store, path);

    if (code == 0 && store->options.shared) {
        code = dedup_client_start(store);
        if (code != -EOPNOTSUPP) {
            return code;
        }
        /* No socket can be made there: then for this process alone. */
        poise_error_clear();
        code = dedup_index_create(&store->index, store->index_bytes);
    }
    if (code == 0) {
        code = dedup_store_lock(store);
    }
    return code < 0 ? code : dedup_store_read_folder(store);
}

void dedup_store_destroy(struct poise_dedup_store *store)
{
    for (size_t i = 0; i < store->count; i++) {
        dedup_body_destroy(store->containers[i]->body);
        free(store->containers[i]);
    }
    free(store->containers);
    dedup_body_destroy(store->spare);
    poise_buf_free(&store->file);
    dedup_index_free(&store->index);
    if (store->lockfd >= 0) {
        close(store->lockfd);
    }
    if (store->dirfd >= 0) {
        close(store->dirfd);
    }
    free(store->path);
    free(store);
}

static void set_defaults(struct poise_dedup_store_options *options)
{
    options->limit_bytes =
        options->limit_bytes ? options->limit_bytes : limit_default;
    options->memory_bytes =
        options->memory_bytes ? options->memory_bytes : memory_default;
    options->wait_ms = options->wait_ms ? options->wait_ms : WAIT_MS;
    if (options->memory_bytes < MEMORY_LEAST) {
        options->memory_bytes = MEMORY_LEAST;
    }
    if (options->container_bytes == 0) {
        /* Several must fit, or each find might mean a read. */
        options->container_bytes = options->memory_bytes / 16 < CONTAINER_BYTES
                                       ? (uint32_t)(options->memory_bytes / 16)
                                       : CONTAINER_BYTES;
    }
    if (options->container_bytes < POISE_DEDUP_SEGMENT_MOST) {
        options->container_bytes = POISE_DEDUP_SEGMENT_MOST;
    }
    if (options->container_bytes > DEDUP_DATA_MOST) {
        options->container_bytes = DEDUP_DATA_MOST;
    }
}

int dedup_store_make(const struct poise_dedup_store_options *options,
                     bool on_disk, struct poise_dedup_store **out)
{
    struct poise_dedup_store *made = poise_alloc(1, sizeof *made);

    if (!made) {
        return -ENOMEM;
    }
    made->dirfd = made->lockfd = -1;
    if (options) {
        made->options = *options;
    }
    set_defaults(&made->options);
    /* On disk, an index that covers much is worth more than a container that
     * need not be read again. */
    made->index_bytes =
        (size_t)(made->options.memory_bytes / (on_disk ? 2 : 8));
    made->body_limit = (size_t)made->options.memory_bytes - made->index_bytes;
    *out = made;
    return 0;
}

int poise_dedup_store_open(const char *path,
                           const struct poise_dedup_store_options *options,
                           struct poise_dedup_store **out)
{
    struct poise_dedup_store *made;
    int code = dedup_store_make(options, path != NULL, &made);

    if (code < 0) {
        return code;
    }
    if (!path || !made->options.shared) {
        code = dedup_index_create(&made->index, made->index_bytes);
    }
    if (code == 0) {
        code = path ? open_folder(made, path) : dedup_identity_make(made);
    }
    if (code < 0) {
        dedup_store_destroy(made);
        return code;
    }
    *out = made;
    return 0;
}

int poise_dedup_store_close(struct poise_dedup_store *store)
{
    int err;

    if (!store) {
        return 0;
    }
    err = poise_dedup_store_flush(store);
    if (store->client) {
        int code = dedup_client_end(store);
        err = err < 0 ? err : code;
    } else if (err == 0 && store->path) {
        err = dedup_snapshot_save(store);
    }
    dedup_store_destroy(store);
    return err;
}
