/*
 * A hold on a checkpoint. Ranks may outlive the launcher that was killed, and
 * go on writing what a resumed job would read: each rank holds a shared lock
 * of PATH.lock, and a job begins once it could have it for itself alone. The
 * kernel drops the locks of the dead.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOLD_PATIENCE_NS (10 * UINT64_C(1000000000))
#define HOLD_FIRST_NAP_NS UINT64_C(1000000)
#define HOLD_LONGEST_NAP_NS UINT64_C(100000000)

enum { HOLD_PATHS = 2 };

struct hold_lock {
    char *name; /**< PATH.lock; NULL: nothing to hold */
    int fd;     /**< -1: none */
};

struct poise_hold {
    bool first; /**< rank 0: removes the files */
    struct hold_lock locks[HOLD_PATHS];
};

/* Whether the name still leads to what was opened: it is removed by the last
 * job while somebody waits for it. */
static bool hold_is_current(const struct hold_lock *lock)
{
    struct stat opened, named;
    return fstat(lock->fd, &opened) == 0 && stat(lock->name, &named) == 0 &&
           opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

static void hold_close(struct hold_lock *lock)
{
    if (lock->fd >= 0) {
        close(lock->fd);
    }
    lock->fd = -1;
}

/* 1: held, or no file can be locked here; 0: somebody else has it. */
static int hold_try(struct hold_lock *lock, int how)
{
    if (lock->fd < 0) {
        lock->fd =
            open(lock->name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    }
    if (lock->fd < 0) {
        return 1;
    }
    if (flock(lock->fd, how | LOCK_NB) < 0) {
        return errno != EWOULDBLOCK && errno != EINTR;
    }
    if (!hold_is_current(lock)) {
        hold_close(lock);
        return 0;
    }
    return 1;
}

static int hold_lock(struct hold_lock *lock, int how, uint64_t until)
{
    uint64_t nap = HOLD_FIRST_NAP_NS;
    while (lock->name && !hold_try(lock, how)) {
        if (poise_clock_ns() >= until) {
            hold_close(lock);
            return poise_error_set(EBUSY, "lock", lock->name,
                                   "another job, or ranks that outlived one, "
                                   "still use this checkpoint");
        }
        poise_sleep_ns(nap);
        nap = nap * 2 < HOLD_LONGEST_NAP_NS ? nap * 2 : HOLD_LONGEST_NAP_NS;
    }
    return 0;
}

/* Alone for a moment, then together with the other ranks. */
static int hold_begin(struct poise_hold *hold, uint64_t until)
{
    int code = 0;
    for (int i = 0; i < HOLD_PATHS && code == 0; i++) {
        code = hold_lock(&hold->locks[i], LOCK_EX, until);
        code = code < 0 ? code : hold_lock(&hold->locks[i], LOCK_SH, until);
    }
    return code;
}

static int hold_join(struct poise_hold *hold, uint64_t until)
{
    int code = 0;
    for (int i = 0; i < HOLD_PATHS && code == 0; i++) {
        code = hold_lock(&hold->locks[i], LOCK_SH, until);
    }
    return code;
}

static int hold_name(struct hold_lock *lock, const char *path)
{
    struct poise_buf name = {0};
    poise_buf_printf(&name, "%s.lock", path);
    if (name.error) {
        poise_buf_free(&name);
        return -ENOMEM;
    }
    lock->name = name.data;
    return 0;
}

static int hold_make(int rank, const char *checkpoint, const char *resume,
                     struct poise_hold **out)
{
    struct poise_hold *hold = poise_alloc(1, sizeof *hold);
    if (!hold) {
        return -ENOMEM;
    }
    hold->first = rank == 0;
    int code = 0;
    for (int i = 0; i < HOLD_PATHS; i++) {
        hold->locks[i].fd = -1;
    }
    if (checkpoint) {
        code = hold_name(&hold->locks[0], checkpoint);
    }
    if (resume && code == 0 &&
        (!checkpoint || strcmp(checkpoint, resume) != 0)) {
        code = hold_name(&hold->locks[1], resume);
    }
    *out = hold;
    return code;
}

int task_hold_take(struct poise_world *world, const char *checkpoint,
                   const char *resume, uint64_t patience_ns,
                   struct poise_hold **out)
{
    int rank = world ? poise_world_rank(world) : 0;
    uint64_t until = poise_clock_ns() + patience_ns;
    struct poise_hold *hold = NULL;
    *out = NULL;
    int code = hold_make(rank, checkpoint, resume, &hold);
    if (code == 0 && rank == 0) {
        code = hold_begin(hold, until);
    }
    code = world ? poise_world_agree(world, code) : code;
    if (code == 0 && rank != 0) {
        code = hold_join(hold, until);
    }
    code = world ? poise_world_agree(world, code) : code;
    if (code < 0) {
        poise_hold_drop(hold);
        return code;
    }
    *out = hold;
    return 0;
}

int poise_hold_take(struct poise_world *world, const char *checkpoint,
                    const char *resume, struct poise_hold **out)
{
    return task_hold_take(world, checkpoint, resume, HOLD_PATIENCE_NS, out);
}

void poise_hold_drop(struct poise_hold *hold)
{
    for (int i = 0; hold && i < HOLD_PATHS; i++) {
        struct hold_lock *lock = &hold->locks[i];
        if (hold->first && lock->fd >= 0 && hold_is_current(lock)) {
            unlink(lock->name);
        }
        hold_close(lock);
        free(lock->name);
    }
    free(hold);
}
