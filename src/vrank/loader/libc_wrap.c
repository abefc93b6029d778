/*
 * Functions that stand in for the C library's: see shim.h. What is covered is
 * what was measured to go wrong in other systems.
 */
#include "libc_wrap.h"

#include "loader.h"
#include "vrank/thread/rank.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SHIM_NS_PER_S UINT64_C(1000000000)
/** How often a rank that waits for a descriptor looks. */
#define SHIM_POLL_NS UINT64_C(200000)

/* ---- the end ------------------------------------------------------------ */

static void shim_exit(int status)
{
    struct vrank *self = vrank_self();
    if (self != NULL) {
        load_rank_end(self->program);
        vrank_exit(status & 0xff);
    }
    vrank_abort(status & 0xff,
                "a thread that is no virtual rank's called exit");
}

/* As a process that leaves so: the job ends. */
static void shim_leave(int status, const char *call)
{
    const struct vrank *self = vrank_self();
    vrank_abort(status & 0xff, "virtual rank %d called %s(%d)",
                self != NULL ? vrank_number(self) : -1, call, status);
}

static void shim__exit(int status)
{
    shim_leave(status, "_exit");
}

static void shim_quick_exit(int status)
{
    shim_leave(status, "quick_exit");
}

/* ---- time and waiting --------------------------------------------------- */

/* Let others run until a time; false where no rank runs. */
static bool shim_sleep_until(const char *call, uint64_t deadline_ns)
{
    if (vrank_self() == NULL) {
        return false;
    }
    /* A permit that is meant for something else is passed on. */
    bool was_woken = false;
    while (poise_clock_ns() < deadline_ns) {
        vrank_park_until(call, deadline_ns);
        was_woken |= poise_clock_ns() < deadline_ns;
    }
    if (was_woken) {
        vrank_unpark(vrank_self());
    }
    return true;
}

static bool shim_sleep_for(const char *call, uint64_t ns)
{
    return shim_sleep_until(call, poise_clock_ns() + ns);
}

static unsigned shim_sleep(unsigned seconds)
{
    return shim_sleep_for("sleep", seconds * SHIM_NS_PER_S) ? 0
                                                            : sleep(seconds);
}

static int shim_usleep(useconds_t us)
{
    return shim_sleep_for("usleep", (uint64_t)us * 1000) ? 0 : usleep(us);
}

static int shim_nanosleep(const struct timespec *time, struct timespec *left)
{
    if (time->tv_sec >= 0 && time->tv_nsec >= 0 &&
        shim_sleep_for("nanosleep", (uint64_t)time->tv_sec * SHIM_NS_PER_S +
                                        (uint64_t)time->tv_nsec)) {
        return 0;
    }
    return nanosleep(time, left);
}

static int shim_clock_nanosleep(clockid_t clock, int flags,
                                const struct timespec *time,
                                struct timespec *left)
{
    if (flags == 0 && time->tv_sec >= 0 && time->tv_nsec >= 0 &&
        shim_sleep_for("clock_nanosleep",
                       (uint64_t)time->tv_sec * SHIM_NS_PER_S +
                           (uint64_t)time->tv_nsec)) {
        return 0;
    }
    return clock_nanosleep(clock, flags, time, left);
}

static int shim_sched_yield(void)
{
    if (vrank_self() == NULL) {
        return sched_yield();
    }
    vrank_yield();
    return 0;
}

static int shim_poll(struct pollfd *items, nfds_t count, int timeout_ms)
{
    int found = 0;
    uint64_t end_ns = UINT64_MAX;
    if (timeout_ms == 0 || vrank_self() == NULL) {
        return poll(items, count, timeout_ms);
    }
    if (timeout_ms > 0) {
        end_ns = poise_clock_ns() + (uint64_t)timeout_ms * 1000000;
    }
    while ((found = poll(items, count, 0)) == 0) {
        uint64_t now_ns = poise_clock_ns();
        if (now_ns >= end_ns) {
            return 0;
        }
        uint64_t wake_ns = now_ns + SHIM_POLL_NS;
        shim_sleep_until("poll", wake_ns < end_ns ? wake_ns : end_ns);
    }
    return found;
}

/* Wait until the descriptor can be read: blocking it would block others. */
static ssize_t shim_read(int fd, void *data, size_t bytes)
{
    struct pollfd item = {.fd = fd, .events = POLLIN};
    if (vrank_self() != NULL) {
        shim_poll(&item, 1, -1);
    }
    return read(fd, data, bytes);
}

/* ---- strtok, random numbers --------------------------------------------- */

static char *shim_strtok(char *text, const char *delimiters)
{
    struct vrank_libc *own = libc_now();
    return own != NULL ? strtok_r(text, delimiters, &own->token)
                       : strtok(text, delimiters);
}

static struct vrank_libc *shim_own_random(void)
{
    struct vrank_libc *own = libc_now();
    if (own != NULL && !own->has_random) {
        own->has_random = true;
        initstate_r(1, own->random_state, sizeof own->random_state,
                    &own->random);
    }
    return own;
}

static void shim_srandom(unsigned seed)
{
    struct vrank_libc *own = shim_own_random();
    if (own != NULL) {
        srandom_r(seed, &own->random);
    } else {
        srandom(seed);
    }
}

static long shim_random(void)
{
    struct vrank_libc *own = shim_own_random();
    int32_t value = 0;
    if (own == NULL) {
        return random();
    }
    random_r(&own->random, &value);
    return value;
}

static int shim_rand(void)
{
    return (int)shim_random();
}

static char *shim_initstate(unsigned seed, char *state, size_t bytes)
{
    struct vrank_libc *own = shim_own_random();
    if (own == NULL) {
        return initstate(seed, state, bytes);
    }
    char *was = (char *)own->random.state;
    return initstate_r(seed, state, bytes, &own->random) == 0 ? was : NULL;
}

static char *shim_setstate(char *state)
{
    struct vrank_libc *own = shim_own_random();
    if (own == NULL) {
        return setstate(state);
    }
    char *was = (char *)own->random.state;
    return setstate_r(state, &own->random) == 0 ? was : NULL;
}

static struct drand48_data *shim_own_drand48(void)
{
    struct vrank_libc *own = libc_now();
    return own != NULL ? &own->drand48 : NULL;
}

#define SHIM_DRAND48(type, name)                                               \
    static type shim_##name(void)                                              \
    {                                                                          \
        struct drand48_data *own = shim_own_drand48();                         \
        type value = 0;                                                        \
        if (own == NULL) {                                                     \
            return name();                                                     \
        }                                                                      \
        name##_r(own, &value);                                                 \
        return value;                                                          \
    }
SHIM_DRAND48(double, drand48)
SHIM_DRAND48(long, lrand48)
SHIM_DRAND48(long, mrand48)

static void shim_srand48(long seed)
{
    struct drand48_data *own = shim_own_drand48();
    if (own != NULL) {
        srand48_r(seed, own);
    } else {
        srand48(seed);
    }
}

static unsigned short *shim_seed48(unsigned short seed[3])
{
    struct drand48_data *own = shim_own_drand48();
    if (own == NULL) {
        return seed48(seed);
    }
    seed48_r(seed, own);
    return own->__old_x;
}

/* ---- what belongs to the whole process ---------------------------------- */

static bool shim_refuses(const char *call)
{
    struct vrank *const *locals;
    const struct vrank *self = vrank_self();
    int count = self != NULL ? vrank_locals(&locals) : 0;
    if (count < 2) {
        return false;
    }
    vrank_say_once(VRANK_ONCE_REFUSED,
                   "virtual rank %d called %s, which fails: %d ranks share the "
                   "process and its working directory",
                   vrank_number(self), call, count);
    errno = ENOTSUP;
    return true;
}

static int shim_chdir(const char *path)
{
    return shim_refuses("chdir") ? -1 : chdir(path);
}

static int shim_fchdir(int fd)
{
    return shim_refuses("fchdir") ? -1 : fchdir(fd);
}

const struct shim shim_process[] = {
    SHIM(exit),
    SHIM(_exit),
    {"_Exit", (void (*)(void))shim__exit},
    SHIM(quick_exit),
    SHIM(sleep),
    SHIM(usleep),
    SHIM(nanosleep),
    SHIM(clock_nanosleep),
    SHIM(sched_yield),
    SHIM(poll),
    SHIM(read),
    SHIM(strtok),
    SHIM(srandom),
    {"srand", (void (*)(void))shim_srandom},
    SHIM(random),
    SHIM(rand),
    SHIM(initstate),
    SHIM(setstate),
    SHIM(drand48),
    SHIM(lrand48),
    SHIM(mrand48),
    SHIM(srand48),
    SHIM(seed48),
    SHIM(chdir),
    SHIM(fchdir),
    {NULL, NULL},
};

void *shim_find(const char *name, bool swapped)
{
    static const struct shim *const tables[] = {
        shim_process, shim_env, shim_getopt, shim_stdio, shim_heap};
    size_t count = sizeof tables / sizeof *tables;
    for (size_t t = 0; t < count - !swapped; t++) {
        for (const struct shim *shim = tables[t]; shim->name != NULL; shim++) {
            if (strcmp(shim->name, name) == 0) {
                return (void *)(uintptr_t)shim->function;
            }
        }
    }
    return NULL;
}
