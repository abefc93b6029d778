/*
 * Descriptors of directories as a cache. A directory that has child
 * directories to be opened stays open while there is room; one that was closed
 * meanwhile is reopened from its nearest open ancestor.
 *
 * The word `state` of a directory, (descriptor + 1) << 32 | pins, or 0 for no
 * descriptor, says which and how many use it now. Who may change it:
 *
 *   0 -> descriptor, 1 pin   walk_fd_publish, under the cache's lock
 *   pins + 1                 walk_fd_try_pin: any thread with a reference to
 * the directory, by compare-and-swap from a state that is not 0 pins - 1
 * walk_fd_unpin: the thread that pinned it 0 pins -> 0              fds_evict,
 * under the lock, by compare-and-swap: it fails if a pin came first, and a pin
 * that comes later finds 0
 *
 * So a pinned descriptor is never closed, and the one that evicts closes it
 * alone. The list (`oldest`, `newest`) and `open` belong to the lock: a
 * directory is in the list if and only if it has a descriptor, but for the
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
    FDS_MOST = 1024,
    FDS_LEAST = 4,
    FDS_RESERVE = 12,   /* for other code that opens files meanwhile */
    FDS_PER_WORKER = 3, /* the one read, one to compare with, one on its way */
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

int walk_fds_init(struct walk_fds *fds, unsigned wanted, unsigned *workers)
{
    struct rlimit limit;
    long soft = 4L * FDS_MOST; /* as good as no limit */
    memset(fds, 0, sizeof *fds);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
        limit.rlim_cur < (rlim_t)soft) {
        soft = (long)limit.rlim_cur;
    }
    unsigned used = fds_in_use();
    long left = used >= (unsigned)soft ? 0 : soft - (long)used - FDS_RESERVE;
    /* Each worker in flight holds some: fewer of them where there are few. */
    unsigned most = left > FDS_LEAST * 4 ? (unsigned)left / 4 : 1;
    if (*workers > most) {
        *workers = most;
    }
    left -= (long)*workers * FDS_PER_WORKER;
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

static void fds_link(struct walk_fds *fds, struct poise_walk_dir *dir)
{
    dir->newer = NULL;
    dir->older = fds->newest;
    *(fds->newest ? &fds->newest->newer : &fds->oldest) = dir;
    fds->newest = dir;
    fds->open++;
}

static void fds_unlink(struct walk_fds *fds, struct poise_walk_dir *dir)
{
    *(dir->older ? &dir->older->newer : &fds->oldest) = dir->newer;
    *(dir->newer ? &dir->newer->older : &fds->newest) = dir->older;
    dir->older = dir->newer = NULL;
    fds->open--;
}

/* Take the descriptor of an idle directory out of the cache, oldest first but
 * for those used since the last look. -1 if all are pinned. Locked. */
static int fds_evict(struct walk_fds *fds)
{
    for (unsigned left = 2 * fds->open; left > 0; left--) {
        struct poise_walk_dir *dir = fds->oldest;
        uint64_t state = __atomic_load_n(&dir->state, __ATOMIC_RELAXED);
        bool idle = (uint32_t)state == 0 &&
                    __atomic_exchange_n(&dir->used, 0, __ATOMIC_RELAXED) == 0;
        fds_unlink(fds, dir);
        if (idle &&
            __atomic_compare_exchange_n(&dir->state, &state, 0, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            return fds_state_fd(state); /* from here on it may be freed */
        }
        fds_link(fds, dir);
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

static void fds_forget(struct walk_fds *fds, struct poise_walk_dir *dir)
{
    if (__atomic_load_n(&dir->state, __ATOMIC_ACQUIRE) == 0) {
        return;
    }
    pthread_mutex_lock(&fds->lock);
    int fd = fds_state_fd(dir->state); /* may have been evicted just now */
    if (fd >= 0) {
        fds_unlink(fds, dir);
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
        fds_forget(fds, dir);
        free(dir);
        dir = parent;
    }
}

int walk_fd_try_pin(struct poise_walk_dir *dir)
{
    uint64_t state = __atomic_load_n(&dir->state, __ATOMIC_ACQUIRE);
    while (state != 0) {
        if (__atomic_compare_exchange_n(&dir->state, &state, state + 1, true,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            __atomic_store_n(&dir->used, 1, __ATOMIC_RELAXED);
            return fds_state_fd(state);
        }
    }
    return -1;
}

void walk_fd_unpin(struct poise_walk_dir *dir)
{
    __atomic_sub_fetch(&dir->state, 1, __ATOMIC_ACQ_REL);
}

int walk_fd_publish(struct walk_fds *fds, struct poise_walk_dir *dir, int fd)
{
    int victim = -1;
    pthread_mutex_lock(&fds->lock);
    int other = walk_fd_try_pin(dir);
    if (other < 0) {
        if (fds->open >= fds->limit) {
            victim = fds_evict(fds);
        }
        fds_link(fds, dir);
        __atomic_store_n(&dir->read_at, WALK_NOWHERE, __ATOMIC_RELAXED);
        __atomic_store_n(&dir->state, (uint64_t)(fd + 1) << 32 | 1,
                         __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&fds->lock);
    if (victim >= 0) {
        close(victim);
    }
    return other >= 0 ? other : fd;
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

static int fds_openat2(int at, const char *name, uint64_t resolve)
{
    struct open_how how = {.flags = FDS_FLAGS, .resolve = resolve};
    int code = poise_fault_check(POISE_FAULT_OPEN);
    if (code != 0) {
        return -code;
    }
    int fd = (int)syscall(SYS_openat2, at, name, &how, sizeof how);
    return fd >= 0 ? fd : -errno;
}

/* Open with `resolve` if it is not 0. Where descriptors are short, close idle
 * ones, and wait for other workers to be done with theirs. */
static int fds_open(struct walk_fds *fds, int at, const char *name,
                    uint64_t resolve)
{
    unsigned retries = FDS_RETRIES;
    for (;;) {
        int fd = resolve ? fds_openat2(at, name, resolve)
                         : fds_openat(at, name, FDS_FLAGS);
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
    return fds_open(fds, fd, ".", 0);
}

int walk_fd_open(struct walk_fds *fds, struct poise_walk_dir *dir,
                 struct walk_chain *chain, bool *crossed)
{
    *crossed = false;
    if (!dir->parent) {
        return fds_open(fds, AT_FDCWD, dir->name, 0);
    }
    int at = walk_fd_pin(fds, dir->parent, chain);
    if (at < 0) {
        return at;
    }
    int fd = -EXDEV;
    if (fds_has_openat2(fds)) {
        fd = fds_open(fds, at, dir->name, RESOLVE_NO_XDEV);
        *crossed = fd == -EXDEV;
        fd = fds_refused(fds, fd) ? -EXDEV : fd;
    }
    if (fd == -EXDEV) {
        fd = fds_open(fds, at, dir->name, 0);
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

/* The next piece of a chain: names joined as far as one call takes them.
 * Returns how many, 0 if memory is short. */
static size_t chain_piece(struct walk_chain *chain)
{
    struct poise_buf *piece = &chain->piece;
    size_t n = 0;
    poise_buf_reset(piece);
    while (n < chain->count) {
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

/* Open "a/b/c" below `at` without following any link: one call, or component
 * by component where openat2 is missing. */
static int chain_open(struct walk_fds *fds, struct walk_chain *chain, int at)
{
    if (fds_has_openat2(fds)) {
        int fd = fds_open(fds, at, chain->piece.data,
                          RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH);
        if (!fds_refused(fds, fd)) {
            return fd;
        }
    }
    int fd = -ENOENT;
    char *rest = chain->piece.data, *name;
    for (int dirfd = at; (name = strsep(&rest, "/")) != NULL; dirfd = fd) {
        fd = fds_open(fds, dirfd, name, 0);
        if (dirfd != at) {
            close(dirfd);
        }
        if (fd < 0) {
            break;
        }
    }
    return fd;
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

/* Open one piece of the chain; the descriptor is published and pinned. */
static int chain_step(struct walk_fds *fds, struct walk_chain *chain, int at,
                      struct poise_walk_dir **reached)
{
    /* Only the chain's owner reads these through const. */
    struct poise_walk_dir *dir =
        (struct poise_walk_dir *)chain->dirs[chain->count - 1];
    int fd;
    if (!dir->parent) {
        chain->count--;
        fd = fds_open(fds, AT_FDCWD, dir->name, 0);
    } else {
        size_t n = chain_piece(chain);
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
    int code = chain_verify(fd, dir);
    if (code < 0) {
        close(fd);
        return code;
    }
    *reached = dir;
    int open = walk_fd_publish(fds, dir, fd);
    if (open != fd) {
        close(fd);
    }
    return open;
}

int walk_fd_pin(struct walk_fds *fds, struct poise_walk_dir *dir,
                struct walk_chain *chain)
{
    int fd = walk_fd_try_pin(dir);
    if (fd >= 0) {
        return fd;
    }
    struct poise_walk_dir *owner = dir;
    chain->count = 0;
    do {
        int code = chain_push(chain, owner);
        if (code < 0) {
            return code;
        }
        owner = owner->parent;
        fd = owner ? walk_fd_try_pin(owner) : AT_FDCWD;
    } while (owner && fd < 0);
    while (chain->count > 0) {
        struct poise_walk_dir *reached = NULL;
        int next = chain_step(fds, chain, fd, &reached);
        if (owner) {
            walk_fd_unpin(owner);
        }
        if (next < 0) {
            return next;
        }
        owner = reached;
        fd = next;
    }
    return fd;
}
