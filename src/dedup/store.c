/*
 * A cache of segments: containers in the order in which they were made, those
 * in memory in the order in which they were used, and the index over all.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CONTAINER_BYTES = 2 << 20,
    MEMORY_LEAST = 1 << 20,
    SAVE_EVERY = 256, /* containers, between two snapshots of the index */
};
static const uint64_t limit_default = UINT64_C(10) << 30;
static const uint64_t memory_default = UINT64_C(64) << 20;

/* ---- containers ------------------------------------------------------------
 */

/* The index of the first container with at least this id. */
static size_t lower(const struct poise_dedup_store *store, uint64_t id)
{
    size_t low = 0, high = store->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (store->containers[middle]->id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct dedup_container *
dedup_store_container(const struct poise_dedup_store *store, uint64_t id)
{
    size_t i = lower(store, id);

    return i < store->count && store->containers[i]->id == id
               ? store->containers[i]
               : NULL;
}

static bool is_alive(uint64_t position, const void *store)
{
    return dedup_store_container(store, position >> DEDUP_SLOT_BITS) != NULL;
}

struct dedup_container *dedup_store_append(struct poise_dedup_store *store,
                                           uint64_t id)
{
    struct dedup_container *made;

    if (store->count == store->cap) {
        size_t cap = 2 * store->cap + 16;
        struct dedup_container **grown =
            poise_realloc(store->containers, cap, sizeof *grown);
        if (!grown) {
            return NULL;
        }
        store->containers = grown;
        store->cap = cap;
    }
    made = poise_alloc(1, sizeof *made);
    if (made) {
        made->id = id;
        made->used = store->clock;
        store->containers[store->count++] = made;
    }
    return made;
}

static void unlink_body(struct poise_dedup_store *store,
                        struct dedup_container *container)
{
    *(container->newer ? &container->newer->older : &store->newest) =
        container->older;
    *(container->older ? &container->older->newer : &store->oldest) =
        container->newer;
    container->older = container->newer = NULL;
}

static void link_newest(struct poise_dedup_store *store,
                        struct dedup_container *container)
{
    container->older = store->newest;
    container->newer = NULL;
    *(store->newest ? &store->newest->newer : &store->oldest) = container;
    store->newest = container;
}

static void use(struct poise_dedup_store *store,
                struct dedup_container *container)
{
    container->used = ++store->clock;
    if (store->newest != container) {
        unlink_body(store, container);
        link_newest(store, container);
    }
}

static void drop_body(struct poise_dedup_store *store,
                      struct dedup_container *container)
{
    if (container->body) {
        store->body_bytes -= dedup_body_bytes(container->body);
        unlink_body(store, container);
        dedup_body_destroy(container->body);
        container->body = NULL;
    }
}

/* Out of the list, and its file, too. */
static void remove_container(struct poise_dedup_store *store,
                             struct dedup_container *container)
{
    size_t i = lower(store, container->id);
    char name[DEDUP_NAME_BYTES];

    drop_body(store, container);
    if (store->path) {
        dedup_container_name(container->id, name);
        unlinkat(store->dirfd, name, 0);
    }
    store->info.bytes -= container->bytes;
    memmove(&store->containers[i], &store->containers[i + 1],
            (store->count - i - 1) * sizeof *store->containers);
    store->count--;
    free(container);
}

static bool is_open(const struct poise_dedup_store *store,
                    const struct dedup_container *container)
{
    return store->has_open && store->containers[store->count - 1] == container;
}

/* Keep within memory; `keep` is in use. */
static void trim(struct poise_dedup_store *store,
                 const struct dedup_container *keep)
{
    struct dedup_container *container = store->oldest;

    while (container && store->body_bytes > store->body_limit) {
        struct dedup_container *newer = container->newer;
        if (container != keep && !is_open(store, container)) {
            if (store->path) {
                drop_body(store, container);
            } else {
                remove_container(store, container);
                store->info.evicted++;
            }
        }
        container = newer;
    }
}

static void add_body(struct poise_dedup_store *store,
                     struct dedup_container *container, struct dedup_body *body)
{
    container->body = body;
    container->count = body->count;
    store->body_bytes += dedup_body_bytes(body);
    link_newest(store, container);
    trim(store, container);
}

/* Bring it into memory: 1; 0 if its file is gone. */
static int load(struct poise_dedup_store *store,
                struct dedup_container *container)
{
    struct dedup_body *body;
    bool damaged = false;
    uint32_t known = container->count;
    int err;

    if (container->body) {
        use(store, container);
        return 1;
    }
    err = dedup_body_load(store->dirfd, store->info.id, container->id, &body,
                          &damaged);
    if (err == -ENOMEM) {
        return err;
    }
    if (err < 0) {
        /* Whatever is wrong with the file, the rest of the cache is not. */
        poise_error_clear();
        store->info.damaged++;
        remove_container(store, container);
        return 0;
    }
    store->info.loads++;
    store->info.damaged += damaged || body->count < known;
    add_body(store, container, body);
    return 1;
}

/* ---- the index -------------------------------------------------------------
 */

int dedup_store_put(struct poise_dedup_store *store, uint64_t fingerprint,
                    uint64_t position)
{
    struct dedup_index *index = &store->index;
    size_t before = index->used;
    int err;

    if (dedup_index_is_full(index)) {
        err = dedup_index_sweep(index, index->sampling, is_alive, store);
        if (err == 0 && index->used > before - before / 4) {
            err =
                dedup_index_sweep(index, index->sampling + 1, is_alive, store);
        }
        if (err < 0) {
            return err;
        }
    }
    dedup_index_put(index, poise_dedup_short(fingerprint, store->info.bits),
                    position);
    return 0;
}

static int learn(struct poise_dedup_store *store,
                 const struct dedup_container *container,
                 const struct dedup_body *body)
{
    int err = 0;

    for (uint32_t i = 0; i < body->count && err == 0; i++) {
        err = dedup_store_put(store, body->entries[i].fingerprint,
                              container->id << DEDUP_SLOT_BITS | i);
    }
    return err;
}

/* Among the containers in memory, the last used first. */
static int find_loaded(struct poise_dedup_store *store, uint64_t fingerprint,
                       uint64_t *position)
{
    for (struct dedup_container *c = store->newest; c; c = c->older) {
        int slot = dedup_body_find(c->body, fingerprint, store->info.bits);
        if (slot >= 0) {
            *position = c->id << DEDUP_SLOT_BITS | (unsigned)slot;
            use(store, c);
            return 1;
        }
    }
    return 0;
}

static int find_indexed(struct poise_dedup_store *store, uint64_t fingerprint,
                        uint64_t *position)
{
    uint64_t at = dedup_index_get(
        &store->index, poise_dedup_short(fingerprint, store->info.bits));
    struct dedup_container *container;
    uint32_t slot = (uint32_t)at & ((1U << DEDUP_SLOT_BITS) - 1);
    int rc;

    if (at == UINT64_MAX) {
        return 0;
    }
    container = dedup_store_container(store, at >> DEDUP_SLOT_BITS);
    rc = container ? load(store, container) : 0;
    if (rc <= 0) {
        return rc;
    }
    if (slot >= container->body->count ||
        poise_dedup_short(container->body->entries[slot].fingerprint,
                          store->info.bits) !=
            poise_dedup_short(fingerprint, store->info.bits)) {
        return 0;
    }
    *position = at;
    return 1;
}

static int find(struct poise_dedup_store *store, uint64_t fingerprint,
                uint64_t *position)
{
    fingerprint = poise_dedup_short(fingerprint, store->info.bits);
    return dedup_index_keeps(&store->index, fingerprint)
               ? find_indexed(store, fingerprint, position)
               : find_loaded(store, fingerprint, position);
}

int poise_dedup_store_find(struct poise_dedup_store *store,
                           uint64_t fingerprint, uint64_t *position)
{
    int rc = find(store, fingerprint, position);

    store->info.finds++;
    store->info.hits += rc > 0;
    return rc;
}

/* ---- reading ---------------------------------------------------------------
 */

uint64_t poise_dedup_store_fingerprint(const struct poise_dedup_store *store,
                                       const void *data, size_t len)
{
    return poise_dedup_short(
        poise_dedup_fingerprint(&store->info.key, data, len), store->info.bits);
}

int poise_dedup_store_read(struct poise_dedup_store *store, uint64_t position,
                           struct poise_dedup_stored *out)
{
    struct dedup_container *container =
        dedup_store_container(store, position >> DEDUP_SLOT_BITS);
    uint32_t slot = (uint32_t)position & ((1U << DEDUP_SLOT_BITS) - 1);
    const struct dedup_entry *entry;
    int rc = container ? load(store, container) : 0;

    if (rc <= 0 || slot >= container->body->count) {
        return rc < 0 ? rc : 0;
    }
    entry = &container->body->entries[slot];
    out->data = container->body->data + entry->offset;
    out->len = entry->len;
    out->fingerprint = poise_dedup_short(entry->fingerprint, store->info.bits);
    return 1;
}

int poise_dedup_store_step(struct poise_dedup_store *store, uint64_t position,
                           int64_t by, uint64_t *out)
{
    size_t i = lower(store, position >> DEDUP_SLOT_BITS);
    int64_t slot = (int64_t)(position & ((1U << DEDUP_SLOT_BITS) - 1));

    if (i == store->count ||
        store->containers[i]->id != position >> DEDUP_SLOT_BITS ||
        by > INT32_MAX || by < -INT32_MAX) {
        return 0;
    }
    slot += by;
    while (slot < 0) {
        if (i == 0) {
            return 0;
        }
        slot += store->containers[--i]->count;
    }
    while (slot >= store->containers[i]->count) {
        slot -= store->containers[i]->count;
        if (++i == store->count) {
            return 0;
        }
    }
    *out = store->containers[i]->id << DEDUP_SLOT_BITS | (uint64_t)slot;
    return 1;
}

/* ---- writing ---------------------------------------------------------------
 */

static int flush(struct poise_dedup_store *store)
{
    struct dedup_container *last;
    uint64_t before;
    int err;

    if (!store->path || !store->has_open) {
        return 0;
    }
    last = store->containers[store->count - 1];
    before = last->body->file_bytes;
    err = dedup_body_write(last->body, store->dirfd, store->info.id, last->id);
    last->bytes = last->body->file_bytes;
    store->info.bytes += last->bytes - before;
    return err;
}

/* Those not used for longest go. */
static void evict(struct poise_dedup_store *store)
{
    while (store->path && store->count > 1 &&
           store->info.bytes > store->options.limit_bytes) {
        struct dedup_container *victim = NULL;
        for (size_t i = 0; i < store->count; i++) {
            struct dedup_container *container = store->containers[i];
            if (!is_open(store, container) &&
                (!victim || container->used < victim->used)) {
                victim = container;
            }
        }
        remove_container(store, victim);
        store->info.evicted++;
    }
}

/* A container for `len` more bytes. */
static int open_container(struct poise_dedup_store *store, size_t len,
                          struct dedup_container **out)
{
    struct dedup_container *last =
        store->count ? store->containers[store->count - 1] : NULL;
    uint64_t id = last ? last->id + 1 : store->clock + 1;
    struct dedup_body *body;
    int err;

    if (store->has_open && last->body->count < DEDUP_SLOTS_MOST &&
        last->body->data_len + len <= store->options.container_bytes) {
        *out = last;
        return 0;
    }
    err = flush(store);
    if (err < 0) {
        return err;
    }
    store->has_open = false;
    evict(store);
    if (store->path && id % SAVE_EVERY == 0) {
        err = dedup_snapshot_save(store);
        if (err < 0) {
            return err;
        }
    }
    body = dedup_body_create();
    last = body ? dedup_store_append(store, id) : NULL;
    if (!last) {
        dedup_body_destroy(body);
        return -ENOMEM;
    }
    store->has_open = true;
    add_body(store, last, body);
    *out = last;
    return 0;
}

/* The same segment, if it is there already: 1. */
static int find_same(struct poise_dedup_store *store, uint64_t fingerprint,
                     size_t len, const unsigned char *digest,
                     uint64_t *position)
{
    const struct dedup_container *container;
    const struct dedup_entry *entry;
    uint64_t at;
    int rc = find(store, fingerprint, &at);

    if (rc <= 0) {
        return rc;
    }
    container = dedup_store_container(store, at >> DEDUP_SLOT_BITS);
    entry = &container->body->entries[at & ((1U << DEDUP_SLOT_BITS) - 1)];
    if (entry->len != len ||
        memcmp(entry->digest, digest, sizeof entry->digest) != 0) {
        return 0;
    }
    *position = at;
    return 1;
}

int poise_dedup_store_add(struct poise_dedup_store *store, const void *data,
                          size_t len, uint64_t *position)
{
    unsigned char digest[POISE_DEDUP_DIGEST_BYTES];
    uint64_t fingerprint, at;
    struct dedup_container *container;
    size_t before;
    int rc;

    if (len == 0 || len > POISE_DEDUP_SEGMENT_MOST) {
        return poise_error_set(EINVAL, "cache segment", NULL, "of %zu bytes",
                               len);
    }
    fingerprint = poise_dedup_fingerprint(&store->info.key, data, len);
    poise_dedup_digest(data, len, digest);
    rc = find_same(store, fingerprint, len, digest, position);
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    rc = open_container(store, len, &container);
    if (rc < 0) {
        return rc;
    }
    before = dedup_body_bytes(container->body);
    rc = dedup_body_add(container->body, fingerprint, data, len, digest);
    store->body_bytes += dedup_body_bytes(container->body) - before;
    if (rc < 0) {
        return rc;
    }
    container->count = container->body->count;
    use(store, container);
    trim(store, container);
    at = container->id << DEDUP_SLOT_BITS | (container->count - 1);
    rc = dedup_store_put(store, fingerprint, at);
    if (rc < 0) {
        return rc;
    }
    store->info.segments++;
    *position = at;
    return 0;
}

int poise_dedup_store_flush(struct poise_dedup_store *store)
{
    return flush(store);
}

/* ---- opening and closing ---------------------------------------------------
 */

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
    int err = 0;

    if (!dir) {
        return fd < 0 ? fd
                      : (close(fd), poise_error_set(errno, "read directory",
                                                    store->path, NULL));
    }
    while (err == 0 && (entry = readdir(dir)) != NULL) {
        struct dedup_container *container;
        char name[DEDUP_NAME_BYTES];
        struct stat st;
        uint64_t id = strtoull(entry->d_name, NULL, 16);
        dedup_container_name(id, name);
        if (id >> 40 != 0 || strcmp(name, entry->d_name) != 0 ||
            fstatat(store->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode)) {
            continue;
        }
        container = dedup_store_append(store, id);
        if (container) {
            container->bytes = (uint64_t)st.st_size;
            store->info.bytes += container->bytes;
        }
        err = container ? 0 : -ENOMEM;
    }
    closedir(dir);
    if (store->count > 0) {
        qsort(store->containers, store->count, sizeof *store->containers,
              by_id);
    }
    return err;
}

/* Read the containers that the snapshot does not know; go on with the last
 * one if there is room. */
static int read_unknown(struct poise_dedup_store *store)
{
    for (size_t i = 0; i < store->count;) {
        struct dedup_container *container = store->containers[i];
        bool is_last = i + 1 == store->count;
        int rc;
        if (container->count > 0 && !is_last) {
            i++;
            continue;
        }
        bool known = container->count > 0;
        rc = load(store, container);
        if (rc > 0 && !known) {
            rc = learn(store, container, container->body);
        }
        if (rc < 0) {
            return rc;
        }
        if (i == store->count || store->containers[i] != container) {
            continue; /* its file is gone */
        }
        if (container->body->file_bytes == 0) {
            remove_container(store, container);
            continue;
        }
        store->has_open = is_last;
        i++;
    }
    return 0;
}

static int open_folder(struct poise_dedup_store *store)
{
    int err;

    if (mkdir(store->path, 0700) < 0 && errno != EEXIST) {
        return poise_error_set(errno, "make directory", store->path, NULL);
    }
    store->dirfd = poise_file_open(AT_FDCWD, store->path,
                                   O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (store->dirfd < 0) {
        return store->dirfd;
    }
    store->lockfd = poise_file_open(store->dirfd, "lock",
                                    O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (store->lockfd < 0) {
        return store->lockfd;
    }
    if (flock(store->lockfd, LOCK_EX | LOCK_NB) < 0) {
        return poise_error_set(
            errno == EWOULDBLOCK ? EBUSY : errno, "open cache", store->path,
            errno == EWOULDBLOCK ? "another process has it open" : NULL);
    }
    err = dedup_identity_open(store);
    if (err == 0) {
        err = list(store);
    }
    if (err == 0) {
        err = dedup_snapshot_load(store);
    }
    if (err == 0) {
        err = read_unknown(store);
    }
    return err;
}

static void destroy(struct poise_dedup_store *store)
{
    for (size_t i = 0; i < store->count; i++) {
        dedup_body_destroy(store->containers[i]->body);
        free(store->containers[i]);
    }
    free(store->containers);
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

int poise_dedup_store_open(const char *path,
                           const struct poise_dedup_store_options *options,
                           struct poise_dedup_store **out)
{
    struct poise_dedup_store *made = poise_alloc(1, sizeof *made);
    size_t index_bytes;
    int err;

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
    index_bytes = (size_t)(made->options.memory_bytes / (path ? 2 : 8));
    made->body_limit = (size_t)made->options.memory_bytes - index_bytes;
    err = dedup_index_create(&made->index, index_bytes);
    if (err == 0 && path) {
        made->path = strdup(path);
        err = made->path ? open_folder(made)
                         : poise_error_set(ENOMEM, "open cache", path, NULL);
    } else if (err == 0) {
        err = dedup_identity_make(made);
    }
    if (err < 0) {
        destroy(made);
        return err;
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
    err = flush(store);
    if (err == 0 && store->path) {
        err = dedup_snapshot_save(store);
    }
    destroy(store);
    return err;
}

struct poise_dedup_store_info
poise_dedup_store_info(const struct poise_dedup_store *store)
{
    struct poise_dedup_store_info info = store->info;

    info.containers = store->count;
    info.sampling = store->index.sampling;
    return info;
}
