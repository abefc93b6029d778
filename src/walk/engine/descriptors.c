/*
 * Descriptors of directories as a cache. A directory that has child
 * directories to be opened stays open while there is room; one that was closed
 * meanwhile is reopened from its nearest open ancestor. A directory has two
 * handles: its own, and the one of its counterpart, the directory of the same
 * names below another operand, made when it is first asked for. Both are in the
 * one cache, under the one limit.
 *
 * The word `state` of a handle, (descriptor + 1) << 32 | pins, or 0 for no
 * descriptor, says which and how many use it now. Who may change it:
 *
 *  - 0 -> descriptor, 1 pin: walk_fd_publish, under the cache's lock;
 *  - pins + 1: handle_try_pin, any thread with a reference to the directory,
 *    by compare-and-swap from a state that is not 0;
 *  - pins - 1: handle_unpin, the thread that pinned it;
 *  - 0 pins -> 0: fds_evict, under the lock, by compare-and-swap: it fails if a
 *    pin came first, and a pin that comes later finds 0.
 *
 * So a pinned descriptor is never closed, and the one that evicts closes it
 * alone. The list (`oldest`, `newest`) and `open` belong to the lock: a
 * handle is in the list if and only if it has a descriptor, but for the
 * moments inside the lock. fds_evict takes it off the list before it clears the
 * word, so that a thread which drops the last reference and reads 0 may free
 * the directory without the lock.
 *
 * `read_at` says where the cached descriptor's own position stands, if the next
 * range may be read on with it; the reader that swaps in WALK_NOWHERE has it
 * for itself. It is reset before a new descriptor is published.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    FDS_FLAGS =
        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
    /* To name what is in it is all that a counterpart is for. */
    FDS_TWIN_FLAGS = O_PATH | O_DIRECTORY | O_CLOEXEC,
    FDS_MOST = 1024,
    FDS_LEAST = 4,
    FDS_RESERVE = 12,   /* for other code that opens files meanwhile */
    FDS_PER_WORKER = 3, /* the one read, one to compare with, one on its way */
    FDS_PER_PAIR = 5,   /* also: the counterpart, one on its way, and three
                           that callbacks open: two files, a directory */
    CHAIN_SHORT = 32,   /* directories: reopened at once */
    FDS_CHAIN = 16,     /* what is open of a deep chain on the way up: it is
                           halved until it is short */
    FDS_RETRIES = 2000, /* rounds of 1 ms when no descriptor can be had */
};

/* The number of the next descriptor: about how many are taken. */
static unsigned fds_in_use(void)
{
    int fd = open("/", O_PATH | O_CLOEXEC);
    if (fd < 0) {
        return UINT_MAX;
    }
    close(fd);
    return (unsigned)fd;
}

int walk_fds_init(struct walk_fds *fds, unsigned wanted,
                  const char *const *counterparts, unsigned *workers)
{
    long each = FDS_PER_WORKER + (counterparts ? FDS_PER_PAIR : 0);
    struct rlimit limit;
    long soft = 4L * FDS_MOST; /* as good as no limit */
    memset(fds, 0, sizeof *fds);
    fds->counterparts = counterparts;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
        limit.rlim_cur < (rlim_t)soft) {
        soft = (long)limit.rlim_cur;
    }
    unsigned used = fds_in_use();
    long left = used >= (unsigned)soft ? 0 : soft - (long)used - FDS_RESERVE;
    /* Each worker in flight holds some: fewer of them where there are few. */
    long spare = left - (counterparts ? 2 : 1) * FDS_CHAIN;
    unsigned most = spare > each ? (unsigned)(spare / each) : 1;
    if (*workers > most) {
        *workers = most;
    }
    left -= (long)*workers * each;
    long size = wanted > 0 && wanted < left ? (long)wanted : left;
    fds->limit = (unsigned)(size < FDS_LEAST  ? FDS_LEAST
                            : size > FDS_MOST ? FDS_MOST
                                              : size);
    int code = pthread_mutex_init(&fds->lock, NULL);
    return code == 0 ? 0 : poise_error_set(code, "create a lock", NULL, NULL);
}

void walk_fds_finish(struct walk_fds *fds)
{
    pthread_mutex_destroy(&fds->lock);
}

static int fds_state_fd(uint64_t state)
{
    return (int)(state >> 32) - 1;
}

static void fds_link(struct walk_fds *fds, struct walk_handle *handle)
{
    handle->newer = NULL;
    handle->older = fds->newest;
    *(fds->newest ? &fds->newest->newer : &fds->oldest) = handle;
    fds->newest = handle;
    fds->open++;
}

static void fds_unlink(struct walk_fds *fds, struct walk_handle *handle)
{
    *(handle->older ? &handle->older->newer : &fds->oldest) = handle->newer;
    *(handle->newer ? &handle->newer->older : &fds->newest) = handle->older;
    handle->older = handle->newer = NULL;
    fds->open--;
}

/* Take an idle descriptor out of the cache, oldest first but for those used
 * since the last look. -1 if all are pinned. Locked. */
static int fds_evict(struct walk_fds *fds)
{
    for (unsigned left = 2 * fds->open; left > 0; left--) {
        struct walk_handle *handle = fds->oldest;
        uint64_t state = __atomic_load_n(&handle->state, __ATOMIC_RELAXED);
        bool idle =
            (uint32_t)state == 0 &&
            __atomic_exchange_n(&handle->used, 0, __ATOMIC_RELAXED) == 0;
        fds_unlink(fds, handle);
        if (idle &&
            __atomic_compare_exchange_n(&handle->state, &state, 0, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            return fds_state_fd(state); /* from here on it may be freed */
        }
        fds_link(fds, handle);
    }
    return -1;
}

/* Close one idle descriptor: whether there was one. */
static bool fds_close_one(struct walk_fds *fds)
{
    pthread_mutex_lock(&fds->lock);
    int fd = fds_evict(fds);
    pthread_mutex_unlock(&fds->lock);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

static void fds_forget(struct walk_fds *fds, struct walk_handle *handle)
{
    if (__atomic_load_n(&handle->state, __ATOMIC_ACQUIRE) == 0) {
        return;
    }
    pthread_mutex_lock(&fds->lock);
    int fd = fds_state_fd(handle->state); /* may have been evicted just now */
    if (fd >= 0) {
        fds_unlink(fds, handle);
    }
    pthread_mutex_unlock(&fds->lock);
    if (fd >= 0) {
        close(fd);
    }
}

void walk_dir_unref(struct walk_fds *fds, struct poise_walk_dir *dir)
{
    while (dir && __atomic_sub_fetch(&dir->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        struct poise_walk_dir *parent = dir->parent;
        fds_forget(fds, &dir->handle);
        if (dir->twin) {
            fds_forget(fds, dir->twin);
            free(dir->twin);
        }
        free(dir->wait);
        free(dir);
        dir = parent;
    }
}

static int handle_try_pin(struct walk_handle *handle)
{
    uint64_t state = __atomic_load_n(&handle->state, __ATOMIC_ACQUIRE);
    while (state != 0) {
        if (__atomic_compare_exchange_n(&handle->state, &state, state + 1, true,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            __atomic_store_n(&handle->used, 1, __ATOMIC_RELAXED);
            return fds_state_fd(state);
        }
    }
    return -1;
}

static void handle_unpin(struct walk_handle *handle)
{
    __atomic_sub_fetch(&handle->state, 1, __ATOMIC_ACQ_REL);
}

int walk_fd_try_pin(struct poise_walk_dir *dir)
{
    return handle_try_pin(&dir->handle);
}

void walk_fd_unpin(struct poise_walk_dir *dir)
{
    handle_unpin(&dir->handle);
}

/* `read_at`: of the directory whose own handle it is; else NULL. */
static int fds_publish(struct walk_fds *fds, struct walk_handle *handle,
                       uint64_t *read_at, int fd)
{
    int victim = -1;
    pthread_mutex_lock(&fds->lock);
    int other = handle_try_pin(handle);
    if (other < 0) {
        if (fds->open >= fds->limit) {
            victim = fds_evict(fds);
        }
        fds_link(fds, handle);
        if (read_at) {
            __atomic_store_n(read_at, WALK_NOWHERE, __ATOMIC_RELAXED);
        }
        __atomic_store_n(&handle->state, (uint64_t)(fd + 1) << 32 | 1,
                         __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&fds->lock);
    if (victim >= 0) {
        close(victim);
    }
    return other >= 0 ? other : fd;
}

int walk_fd_publish(struct walk_fds *fds, struct poise_walk_dir *dir, int fd)
{
    return fds_publish(fds, &dir->handle, &dir->read_at, fd);
}

/* ---- counterparts' handles ---------------------------------------------- */

static struct walk_handle *twin_of(struct poise_walk_dir *dir)
{
    return __atomic_load_n(&dir->twin, __ATOMIC_ACQUIRE);
}

static int twin_try_pin(struct poise_walk_dir *dir)
{
    struct walk_handle *twin = twin_of(dir);
    return twin ? handle_try_pin(twin) : -1;
}

void walk_twin_unpin(struct poise_walk_dir *dir)
{
    handle_unpin(twin_of(dir));
}

/* It is made once, and lives as long as the directory. */
static int twin_publish(struct walk_fds *fds, struct poise_walk_dir *dir,
                        int fd)
{
    struct walk_handle *twin = twin_of(dir);
    if (!twin) {
        struct walk_handle *made = poise_alloc(1, sizeof *made);
        if (!made) {
            return -ENOMEM;
        }
        if (__atomic_compare_exchange_n(&dir->twin, &twin, made, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            twin = made;
        } else {
            free(made);
        }
    }
    return fds_publish(fds, twin, NULL, fd);
}

/* ---- opening ------------------------------------------------------------ */

static int fds_openat(int at, const char *name, int flags)
{
    int code = poise_fault_check(POISE_FAULT_OPEN);
    if (code != 0) {
        return -code;
    }
    int fd = openat(at, name, flags);
    return fd >= 0 ? fd : -errno;
}

static int fds_openat2(int at, const char *name, int flags, uint64_t resolve)
{
    struct open_how how = {.flags = (uint64_t)flags, .resolve = resolve};
    int code = poise_fault_check(POISE_FAULT_OPEN);
    if (code != 0) {
        return -code;
    }
    int fd = (int)syscall(SYS_openat2, at, name, &how, sizeof how);
    return fd >= 0 ? fd : -errno;
}

/* Open with `resolve` if it is not 0. Where descriptors are short, close idle
 * ones, and wait for other workers to be done with theirs. */
static int fds_open(struct walk_fds *fds, int at, const char *name, int flags,
                    uint64_t resolve)
{
    unsigned retries = FDS_RETRIES;
    /* Counterparts, O_PATH, are written to: no link there is followed. */
    if (!(flags & O_PATH) &&
        (fds->follow == POISE_WALK_FOLLOW_ALL ||
         (fds->follow == POISE_WALK_FOLLOW_OPERANDS && at == AT_FDCWD))) {
        flags &= ~O_NOFOLLOW;
        resolve &= RESOLVE_NO_XDEV;
    }
    for (;;) {
        int fd = resolve ? fds_openat2(at, name, flags, resolve)
                         : fds_openat(at, name, flags);
        if (fd == -EINTR || fd == -EAGAIN) {
            continue;
        }
        if ((fd != -EMFILE && fd != -ENFILE) || retries == 0) {
            return fd;
        }
        if (!fds_close_one(fds)) {
            poise_sleep_ns(1000000);
            retries--;
        }
    }
}

static bool fds_has_openat2(struct walk_fds *fds)
{
    return !__atomic_load_n(&fds->no_openat2, __ATOMIC_RELAXED);
}

/* Whether the kernel, or a sandbox, does not know openat2: remembered. */
static bool fds_refused(struct walk_fds *fds, int code)
{
    if (code == -ENOSYS || code == -EPERM) {
        __atomic_store_n(&fds->no_openat2, 1, __ATOMIC_RELAXED);
        return true;
    }
    return false;
}

int walk_fd_again(struct walk_fds *fds, int fd)
{
    return fds_open(fds, fd, ".", FDS_FLAGS, 0);
}

int walk_fd_open(struct walk_fds *fds, struct poise_walk_dir *dir,
                 struct walk_chain *chain, bool *crossed)
{
    *crossed = false;
    if (!dir->parent) {
        return fds_open(fds, fds->roots_fd, dir->name, FDS_FLAGS, 0);
    }
    int at = walk_fd_pin(fds, dir->parent, chain);
    if (at < 0) {
        return at;
    }
    int fd = -EXDEV;
    if (fds_has_openat2(fds)) {
        fd = fds_open(fds, at, dir->name, FDS_FLAGS, RESOLVE_NO_XDEV);
        *crossed = fd == -EXDEV;
        fd = fds_refused(fds, fd) ? -EXDEV : fd;
    }
    if (fd == -EXDEV) {
        fd = fds_open(fds, at, dir->name, FDS_FLAGS, 0);
    }
    walk_fd_unpin(dir->parent);
    return fd;
}

/* ---- reopening ---------------------------------------------------------- */

void walk_chain_free(struct walk_chain *chain)
{
    free(chain->dirs);
    poise_buf_free(&chain->piece);
    memset(chain, 0, sizeof *chain);
}

static int chain_push(struct walk_chain *chain,
                      const struct poise_walk_dir *dir)
{
    if (chain->count == chain->cap) {
        size_t cap = chain->cap ? 2 * chain->cap : 64;
        void *dirs = poise_realloc(chain->dirs, cap, sizeof *chain->dirs);
        if (!dirs) {
            return -ENOMEM;
        }
        chain->dirs = dirs;
        chain->cap = cap;
    }
    chain->dirs[chain->count++] = dir;
    return 0;
}

/* The next piece of a chain: names joined as far as one call takes them, and
 * of a long chain half at most: what is opened stays in the cache, so that
 * whoever comes from below, as `leave` does, soon finds an open ancestor.
 * Returns how many, 0 if memory is short. */
static size_t chain_piece(struct walk_chain *chain)
{
    struct poise_buf *piece = &chain->piece;
    size_t most =
        chain->count > CHAIN_SHORT ? (chain->count + 1) / 2 : chain->count;
    size_t n = 0;
    poise_buf_reset(piece);
    while (n < most) {
        const struct poise_walk_dir *dir = chain->dirs[chain->count - 1 - n];
        if (n > 0 && piece->len + 1 + dir->name_len >= PATH_MAX) {
            break;
        }
        if (n > 0) {
            poise_buf_putc(piece, '/');
        }
        poise_buf_append(piece, dir->name, dir->name_len);
        n++;
    }
    poise_buf_str(piece);
    return piece->error ? 0 : n;
}

static int chain_flags(const struct walk_chain *chain)
{
    return chain->twin ? FDS_TWIN_FLAGS | O_NOFOLLOW : FDS_FLAGS;
}

/* Open "a/b/c" below `at` without following any link (but where the walk
 * does): one call, or component by component where openat2 is missing. */
static int chain_open(struct walk_fds *fds, struct walk_chain *chain, int at)
{
    int flags = chain_flags(chain);
    if (fds_has_openat2(fds)) {
        int fd = fds_open(fds, at, chain->piece.data, flags,
                          RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH);
        if (!fds_refused(fds, fd)) {
            return fd;
        }
    }
    int fd = -ENOENT;
    char *rest = chain->piece.data, *name;
    for (int dirfd = at; (name = strsep(&rest, "/")) != NULL; dirfd = fd) {
        fd = fds_open(fds, dirfd, name, flags, 0);
        if (dirfd != at) {
            close(dirfd);
        }
        if (fd < 0) {
            break;
        }
    }
    return fd;
}

static int chain_open_root(struct walk_fds *fds, const struct walk_chain *chain,
                           const struct poise_walk_dir *dir)
{
    if (chain->twin) {
        return fds_open(fds, AT_FDCWD, fds->counterparts[dir->root],
                        FDS_TWIN_FLAGS, 0);
    }
    return fds_open(fds, fds->roots_fd, dir->name, FDS_FLAGS, 0);
}

/* A directory that was read under this name must still be the same one. */
static int chain_verify(int fd, const struct poise_walk_dir *dir)
{
    struct stat st;
    if (!dir->verified) {
        return 0;
    }
    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    return st.st_ino == dir->ino && st.st_dev == dir->dev ? 0 : -ESTALE;
}

/* Whether what `n` names led to is to stay open: not where so many like it
 * follow that they would drive out all else, and this one, too. What is near
 * the end is soon wanted by who goes up, of the directory and its counterpart
 * in turn. */
static bool chain_keeps(const struct walk_fds *fds,
                        const struct walk_chain *chain, size_t n)
{
    return chain->count / n <= fds->limit / (fds->counterparts ? 4 : 2);
}

/* Open one piece of the chain; the descriptor is published and pinned, or, if
 * nothing is reached, the caller's alone. */
static int chain_step(struct walk_fds *fds, struct walk_chain *chain, int at,
                      struct poise_walk_dir **reached)
{
    /* Only the chain's owner reads these through const. */
    struct poise_walk_dir *dir =
        (struct poise_walk_dir *)chain->dirs[chain->count - 1];
    size_t n = 1;
    int fd;
    if (!dir->parent) {
        n = chain->count-- / 2 + 1; /* as if what follows were near */
        fd = chain_open_root(fds, chain, dir);
    } else {
        n = chain_piece(chain);
        if (n == 0) {
            return -ENOMEM;
        }
        chain->count -= n;
        dir = (struct poise_walk_dir *)chain->dirs[chain->count];
        fd = chain_open(fds, chain, at);
    }
    if (fd < 0) {
        return fd;
    }
    int code = chain->twin ? 0 : chain_verify(fd, dir);
    int open = code;
    if (code == 0 && !chain_keeps(fds, chain, n)) {
        return fd;
    }
    if (code == 0) {
        open = chain->twin ? twin_publish(fds, dir, fd)
                           : walk_fd_publish(fds, dir, fd);
    }
    if (open != fd) {
        close(fd);
    }
    if (open >= 0) {
        *reached = dir;
    }
    return open;
}

static int chain_try_pin(const struct walk_chain *chain,
                         struct poise_walk_dir *dir)
{
    return chain->twin ? twin_try_pin(dir) : walk_fd_try_pin(dir);
}

static void chain_unpin(const struct walk_chain *chain,
                        struct poise_walk_dir *dir)
{
    if (chain->twin) {
        walk_twin_unpin(dir);
    } else {
        walk_fd_unpin(dir);
    }
}

/* Pin the descriptor of `dir`, which is not open, by way of its nearest open
 * ancestor. */
static int chain_pin(struct walk_fds *fds, struct walk_chain *chain,
                     struct poise_walk_dir *dir)
{
    struct poise_walk_dir *owner = dir;
    int fd;
    chain->count = 0;
    do {
        int code = chain_push(chain, owner);
        if (code < 0) {
            return code;
        }
        owner = owner->parent;
        fd = owner ? chain_try_pin(chain, owner) : AT_FDCWD;
    } while (owner && fd < 0);
    while (chain->count > 0) {
        struct poise_walk_dir *reached = NULL;
        int next = chain_step(fds, chain, fd, &reached);
        if (owner) {
            chain_unpin(chain, owner);
        } else if (fd >= 0) {
            close(fd);
        }
        if (next < 0) {
            return next;
        }
        owner = reached;
        fd = next;
    }
    return fd;
}

int walk_fd_pin(struct walk_fds *fds, struct poise_walk_dir *dir,
                struct walk_chain *chain)
{
    int fd = walk_fd_try_pin(dir);
    if (fd >= 0) {
        return fd;
    }
    chain->twin = false;
    return chain_pin(fds, chain, dir);
}

int walk_twin_pin(struct walk_fds *fds, struct poise_walk_dir *dir,
                  struct walk_chain *chain)
{
    int fd = twin_try_pin(dir);
    if (fd >= 0) {
        return fd;
    }
    chain->twin = true;
    fd = chain_pin(fds, chain, dir);
    return fd == -ELOOP ? -ENOTDIR : fd; /* a link in the way */
}
