/*
 * Wrappers of the C library's functions: see libc_wrap.h. There is one for what
 * was measured to go wrong in other systems.
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

#define WRAP_NS_PER_S UINT64_C(1000000000)
/** How often a rank that waits for a descriptor looks. */
#define WRAP_POLL_NS UINT64_C(200000)

/* ---- time and waiting --------------------------------------------------- */

/* Let others run until a time; false where no rank runs. */
static bool wrap_sleep_until(const char *call, uint64_t deadline_ns)
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

static bool wrap_sleep_for(const char *call, uint64_t ns)
{
    return wrap_sleep_until(call, poise_clock_ns() + ns);
}

static unsigned wrap_sleep(unsigned seconds)
{
    return wrap_sleep_for("sleep", seconds * WRAP_NS_PER_S) ? 0
                                                            : sleep(seconds);
}

static int wrap_usleep(useconds_t us)
{
    return wrap_sleep_for("usleep", (uint64_t)us * 1000) ? 0 : usleep(us);
}

static int wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    if (time->tv_sec >= 0 && time->tv_nsec >= 0 &&
        wrap_sleep_for("nanosleep", (uint64_t)time->tv_sec * WRAP_NS_PER_S +
                                        (uint64_t)time->tv_nsec)) {
        return 0;
    }
    return nanosleep(time, left);
}

static int wrap_clock_nanosleep(clockid_t clock, int flags,
                                const struct timespec *time,
                                struct timespec *left)
{
    if (flags == 0 && time->tv_sec >= 0 && time->tv_nsec >= 0 &&
        wrap_sleep_for("clock_nanosleep",
                       (uint64_t)time->tv_sec * WRAP_NS_PER_S +
                           (uint64_t)time->tv_nsec)) {
        return 0;
    }
    return clock_nanosleep(clock, flags, time, left);
}

static int wrap_sched_yield(void)
{
    if (vrank_self() == NULL) {
        return sched_yield();
    }
    vrank_yield();
    return 0;
}

static int wrap_poll(struct pollfd *items, nfds_t count, int timeout_ms)
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
        uint64_t wake_ns = now_ns + WRAP_POLL_NS;
        wrap_sleep_until("poll", wake_ns < end_ns ? wake_ns : end_ns);
    }
    return found;
}

/* Wait until the descriptor can be read: blocking it would block others. */
static ssize_t wrap_read(int fd, void *data, size_t bytes)
{
    struct pollfd item = {.fd = fd, .events = POLLIN};
    if (vrank_self() != NULL) {
        wrap_poll(&item, 1, -1);
    }
    return read(fd, data, bytes);
}

/* ---- strtok, random numbers --------------------------------------------- */

static char *wrap_strtok(char *text, const char *delimiters)
{
    struct vrank_libc *own = libc_now();
    return own != NULL ? strtok_r(text, delimiters, &own->token)
                       : strtok(text, delimiters);
}

static struct vrank_libc *wrap_own_random(void)
{
    struct vrank_libc *own = libc_now();
    if (own != NULL && !own->has_random) {
        own->has_random = true;
        initstate_r(1, own->random_state, sizeof own->random_state,
                    &own->random);
    }
    return own;
}

static void wrap_srandom(unsigned seed)
{
    struct vrank_libc *own = wrap_own_random();
    if (own != NULL) {
        srandom_r(seed, &own->random);
    } else {
        srandom(seed);
    }
}

static long wrap_random(void)
{
    struct vrank_libc *own = wrap_own_random();
    int32_t value = 0;
    if (own == NULL) {
        return random();
    }
    random_r(&own->random, &value);
    return value;
}

static int wrap_rand(void)
{
    return (int)wrap_random();
}

static char *wrap_initstate(unsigned seed, char *state, size_t bytes)
{
    struct vrank_libc *own = wrap_own_random();
    if (own == NULL) {
        return initstate(seed, state, bytes);
    }
    char *was = (char *)own->random.state;
    return initstate_r(seed, state, bytes, &own->random) == 0 ? was : NULL;
}

static char *wrap_setstate(char *state)
{
    struct vrank_libc *own = wrap_own_random();
    if (own == NULL) {
        return setstate(state);
    }
    char *was = (char *)own->random.state;
    return setstate_r(state, &own->random) == 0 ? was : NULL;
}

static struct drand48_data *wrap_own_drand48(void)
{
    struct vrank_libc *own = libc_now();
    return own != NULL ? &own->drand48 : NULL;
}

#define WRAP_DRAND48(type, name)                                               \
    static type wrap_##name(void)                                              \
    {                                                                          \
        struct drand48_data *own = wrap_own_drand48();                         \
        type value = 0;                                                        \
        if (own == NULL) {                                                     \
            return name();                                                     \
        }                                                                      \
        name##_r(own, &value);                                                 \
        return value;                                                          \
    }
WRAP_DRAND48(double, drand48)
WRAP_DRAND48(long, lrand48)
WRAP_DRAND48(long, mrand48)

static void wrap_srand48(long seed)
{
    struct drand48_data *own = wrap_own_drand48();
    if (own != NULL) {
        srand48_r(seed, own);
    } else {
        srand48(seed);
    }
}

static unsigned short *wrap_seed48(unsigned short seed[3])
{
    struct drand48_data *own = wrap_own_drand48();
    if (own == NULL) {
        return seed48(seed);
    }
    seed48_r(seed, own);
    return own->__old_x;
}

/* ---- what belongs to the whole process ---------------------------------- */

static bool wrap_refuses(const char *call)
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

static int wrap_chdir(const char *path)
{
    return wrap_refuses("chdir") ? -1 : chdir(path);
}

static int wrap_fchdir(int fd)
{
    return wrap_refuses("fchdir") ? -1 : fchdir(fd);
}

const struct libc_wrap wrap_process[] = {
    WRAP(sleep),       WRAP(usleep),
    WRAP(nanosleep),   WRAP(clock_nanosleep),
    WRAP(sched_yield), WRAP(poll),
    WRAP(read),        WRAP(strtok),
    WRAP(srandom),     {"srand", (void (*)(void))wrap_srandom},
    WRAP(random),      WRAP(rand),
    WRAP(initstate),   WRAP(setstate),
    WRAP(drand48),     WRAP(lrand48),
    WRAP(mrand48),     WRAP(srand48),
    WRAP(seed48),      WRAP(chdir),
    WRAP(fchdir),      {NULL, NULL},
};

void *wrap_find(const char *name, bool swapped)
{
    static const struct libc_wrap *const tables[] = {
        wrap_end, wrap_process, wrap_env, wrap_getopt, wrap_stdio, wrap_heap};
    size_t count = sizeof tables / sizeof *tables;
    for (size_t t = 0; t < count - !swapped; t++) {
        for (const struct libc_wrap *wrap = tables[t]; wrap->name != NULL;
             wrap++) {
            if (strcmp(wrap->name, name) == 0) {
                return (void *)(uintptr_t)wrap->function;
            }
        }
    }
    return NULL;
}
