/*
 * The lock of a checkpoint: one job at a time uses it. Ranks may outlive a
 * launcher that was killed and go on writing what a resumed job would read, so
 * the lock must belong to the ranks: each holds a shared lock of PATH.lock,
 * which the kernel drops when the process ends, however it ends.
 *
 * Rank 0 first takes the file exclusively, which succeeds only when no rank of
 * another job holds it, then makes its lock a shared one; only then (agreed
 * upon by the world) do the other ranks take theirs. So while any rank of a job
 * lives, no other job begins. It is a lock of the open file by fcntl(2), which
 * goes from exclusive to shared without a moment between; flock(2) would let
 * go of it first.
 *
 * Rank 0 removes the file at the end, while it still holds it. A job that waits
 * may then lock a file that has no name any more: it compares what it locked
 * with what the name leads to, and begins again if they differ.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_TIMEOUT_NS (10 * UINT64_C(1000000000))
#define LOCK_FIRST_NAP_NS UINT64_C(1000000)
#define LOCK_LONGEST_NAP_NS UINT64_C(100000000)

enum { LOCK_PATHS = 2 };

struct lock_file {
    char *name; /**< PATH.lock; NULL: nothing to lock */
    int fd;     /**< -1: none */
};

struct poise_checkpoint_lock {
    bool first; /**< rank 0: removes the files */
    struct lock_file files[LOCK_PATHS];
};

/* Whether the name still leads to what was opened. */
static bool lock_is_current(const struct lock_file *file)
{
    struct stat opened, named;
    return fstat(file->fd, &opened) == 0 && stat(file->name, &named) == 0 &&
           opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

static void lock_close(struct lock_file *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
    file->fd = -1;
}

/* 1: locked, or no file can be locked here; 0: another job has it. */
static int lock_try(struct lock_file *file, short how)
{
    if (file->fd < 0) {
        file->fd =
            open(file->name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    }
    if (file->fd < 0) {
        return 1;
    }
    struct flock whole = {.l_type = how, .l_whence = SEEK_SET};
    if (fcntl(file->fd, F_OFD_SETLK, &whole) < 0) {
        return errno != EAGAIN && errno != EACCES && errno != EINTR;
    }
    if (!lock_is_current(file)) {
        lock_close(file);
        return 0;
    }
    return 1;
}

static int lock_wait(struct lock_file *file, short how, uint64_t until)
{
    uint64_t nap = LOCK_FIRST_NAP_NS;
    while (file->name && !lock_try(file, how)) {
        if (poise_clock_ns() >= until) {
            lock_close(file);
            return poise_error_set(EBUSY, "lock", file->name,
                                   "another job, or ranks that outlived one, "
                                   "still use this checkpoint");
        }
        poise_sleep_ns(nap);
        nap = nap * 2 < LOCK_LONGEST_NAP_NS ? nap * 2 : LOCK_LONGEST_NAP_NS;
    }
    return 0;
}

/* Of rank 0: alone for a moment, then shared with the other ranks. */
static int lock_begin(struct poise_checkpoint_lock *lock, uint64_t until)
{
    int code = 0;
    for (int i = 0; i < LOCK_PATHS && code == 0; i++) {
        code = lock_wait(&lock->files[i], F_WRLCK, until);
        code = code < 0 ? code : lock_wait(&lock->files[i], F_RDLCK, until);
    }
    return code;
}

static int lock_join(struct poise_checkpoint_lock *lock, uint64_t until)
{
    int code = 0;
    for (int i = 0; i < LOCK_PATHS && code == 0; i++) {
        code = lock_wait(&lock->files[i], F_RDLCK, until);
    }
    return code;
}

static int lock_name(struct lock_file *file, const char *path)
{
    struct poise_buf name = {0};
    poise_buf_printf(&name, "%s.lock", path);
    if (name.error) {
        poise_buf_free(&name);
        return -ENOMEM;
    }
    file->name = name.data;
    return 0;
}

static int lock_make(int rank, const char *checkpoint, const char *resume,
                     struct poise_checkpoint_lock **out)
{
    struct poise_checkpoint_lock *lock = poise_alloc(1, sizeof *lock);
    if (!lock) {
        return -ENOMEM;
    }
    lock->first = rank == 0;
    int code = 0;
    for (int i = 0; i < LOCK_PATHS; i++) {
        lock->files[i].fd = -1;
    }
    if (checkpoint) {
        code = lock_name(&lock->files[0], checkpoint);
    }
    if (resume && code == 0 &&
        (!checkpoint || strcmp(checkpoint, resume) != 0)) {
        code = lock_name(&lock->files[1], resume);
    }
    *out = lock;
    return code;
}

int task_checkpoint_lock(struct poise_world *world, const char *checkpoint,
                         const char *resume, uint64_t timeout_ns,
                         struct poise_checkpoint_lock **out)
{
    int rank = world ? poise_world_rank(world) : 0;
    uint64_t until = poise_clock_ns() + timeout_ns;
    struct poise_checkpoint_lock *lock = NULL;
    *out = NULL;
    int code = lock_make(rank, checkpoint, resume, &lock);
    if (code == 0 && rank == 0) {
        code = lock_begin(lock, until);
    }
    code = world ? poise_world_agree(world, code) : code;
    if (code == 0 && rank != 0) {
        code = lock_join(lock, until);
    }
    code = world ? poise_world_agree(world, code) : code;
    if (code < 0) {
        poise_pool_checkpoint_unlock(lock);
        return code;
    }
    *out = lock;
    return 0;
}

int poise_pool_checkpoint_lock(struct poise_world *world,
                               const char *checkpoint, const char *resume,
                               struct poise_checkpoint_lock **out)
{
    return task_checkpoint_lock(world, checkpoint, resume, LOCK_TIMEOUT_NS,
                                out);
}

void poise_pool_checkpoint_unlock(struct poise_checkpoint_lock *lock)
{
    for (int i = 0; lock && i < LOCK_PATHS; i++) {
        struct lock_file *file = &lock->files[i];
        if (lock->first && file->fd >= 0 && lock_is_current(file)) {
            unlink(file->name);
        }
        lock_close(file);
        free(file->name);
    }
    free(lock);
}
