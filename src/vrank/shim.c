/*
 * Functions of the C library that keep state for a process, or block it, as a
 * virtual rank needs them. They are exported by libpoise-vmpi, which stands in
 * front of the C library in programs for virtual ranks and in poise-vrank, and
 * serve every object there. On a thread that runs no rank they are the C
 * library's.
 *
 * Source of what is covered: what was measured to go wrong in other systems.
 */
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SHIM_NS_PER_S UINT64_C(1000000000)
/** How often a rank that waits for a descriptor looks. */
#define SHIM_POLL_NS UINT64_C(200000)

/* The next definition of `name` behind ours. */
#define SHIM_NEXT(type, name) ((type)(uintptr_t)dlsym(RTLD_NEXT, name))

static uint64_t shim_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SHIM_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* ---- the end ---------------------------------------------------------------
 */

SHIM_API _Noreturn void exit(int status)
{
    poise_vrank_exit(status);
    SHIM_NEXT(void (*)(int), "exit")(status);
    __builtin_unreachable();
}

SHIM_API _Noreturn void _exit(int status)
{
    poise_vrank_quit(status, "_exit");
    SHIM_NEXT(void (*)(int), "_exit")(status);
    __builtin_unreachable();
}

SHIM_API _Noreturn void _Exit(int status)
{
    _exit(status);
}

SHIM_API _Noreturn void quick_exit(int status)
{
    poise_vrank_quit(status, "quick_exit");
    SHIM_NEXT(void (*)(int), "quick_exit")(status);
    __builtin_unreachable();
}

/* ---- time and waiting ------------------------------------------------------
 */

static bool shim_sleep(const char *call, uint64_t ns)
{
    return poise_vrank_sleep(call, shim_now_ns() + ns);
}

SHIM_API unsigned sleep(unsigned seconds)
{
    if (shim_sleep("sleep", seconds * SHIM_NS_PER_S)) {
        return 0;
    }
    return SHIM_NEXT(unsigned (*)(unsigned), "sleep")(seconds);
}

SHIM_API int usleep(useconds_t us)
{
    if (shim_sleep("usleep", (uint64_t)us * 1000)) {
        return 0;
    }
    return SHIM_NEXT(int (*)(useconds_t), "usleep")(us);
}

SHIM_API int nanosleep(const struct timespec *time, struct timespec *left)
{
    if (time->tv_sec >= 0 && time->tv_nsec >= 0 &&
        shim_sleep("nanosleep", (uint64_t)time->tv_sec * SHIM_NS_PER_S +
                                    (uint64_t)time->tv_nsec)) {
        return 0;
    }
    return SHIM_NEXT(int (*)(const struct timespec *, struct timespec *),
                     "nanosleep")(time, left);
}

SHIM_API int sched_yield(void)
{
    return poise_vrank_yield() ? 0 : SHIM_NEXT(int (*)(void), "sched_yield")();
}

SHIM_API int poll(struct pollfd *items, nfds_t count, int timeout_ms)
{
    typedef int (*poll_fn)(struct pollfd *, nfds_t, int);
    poll_fn next = SHIM_NEXT(poll_fn, "poll");
    int found = 0;
    uint64_t end_ns = UINT64_MAX;
    if (timeout_ms == 0 || poise_vrank_libc() == NULL) {
        return next(items, count, timeout_ms);
    }
    if (timeout_ms > 0) {
        end_ns = shim_now_ns() + (uint64_t)timeout_ms * 1000000;
    }
    while ((found = next(items, count, 0)) == 0) {
        uint64_t now_ns = shim_now_ns();
        if (now_ns >= end_ns) {
            return 0;
        }
        uint64_t wake_ns = now_ns + SHIM_POLL_NS;
        poise_vrank_sleep("poll", wake_ns < end_ns ? wake_ns : end_ns);
    }
    return found;
}

/* ---- strtok, random numbers ------------------------------------------------
 */

SHIM_API char *strtok(char *text, const char *delimiters)
{
    static char *elsewhere; /* global as the C library's: no rank runs */
    struct vrank_libc *own = poise_vrank_libc();
    return strtok_r(text, delimiters, own != NULL ? &own->token : &elsewhere);
}

static struct vrank_libc *shim_random(void)
{
    struct vrank_libc *own = poise_vrank_libc();
    if (own != NULL && !own->has_random) {
        own->has_random = true;
        initstate_r(1, own->random_state, sizeof own->random_state,
                    &own->random);
    }
    return own;
}

SHIM_API void srandom(unsigned seed)
{
    struct vrank_libc *own = shim_random();
    if (own != NULL) {
        srandom_r(seed, &own->random);
    } else {
        SHIM_NEXT(void (*)(unsigned), "srandom")(seed);
    }
}

SHIM_API void srand(unsigned seed)
{
    srandom(seed);
}

SHIM_API long random(void)
{
    struct vrank_libc *own = shim_random();
    int32_t value;
    if (own == NULL) {
        return SHIM_NEXT(long (*)(void), "random")();
    }
    random_r(&own->random, &value);
    return value;
}

SHIM_API int rand(void)
{
    return (int)random();
}

SHIM_API char *initstate(unsigned seed, char *state, size_t bytes)
{
    struct vrank_libc *own = shim_random();
    if (own == NULL) {
        return SHIM_NEXT(char *(*)(unsigned, char *, size_t),
                         "initstate")(seed, state, bytes);
    }
    char *was = (char *)own->random.state;
    return initstate_r(seed, state, bytes, &own->random) == 0 ? was : NULL;
}

static struct drand48_data *shim_drand48(void)
{
    struct vrank_libc *own = poise_vrank_libc();
    if (own == NULL) {
        return NULL;
    }
    if (!own->has_drand48) {
        /* As the C library's that was never seeded: all zero. */
        own->has_drand48 = true;
        memset(&own->drand48, 0, sizeof own->drand48);
    }
    return &own->drand48;
}

#define SHIM_DRAND48(type, name)                                               \
    SHIM_API type name(void)                                                   \
    {                                                                          \
        struct drand48_data *own = shim_drand48();                             \
        type value = 0;                                                        \
        if (own == NULL) {                                                     \
            return SHIM_NEXT(type(*)(void), #name)();                          \
        }                                                                      \
        name##_r(own, &value);                                                 \
        return value;                                                          \
    }
SHIM_DRAND48(double, drand48)
SHIM_DRAND48(long, lrand48)
SHIM_DRAND48(long, mrand48)

SHIM_API void srand48(long seed)
{
    struct drand48_data *own = shim_drand48();
    if (own != NULL) {
        srand48_r(seed, own);
    } else {
        SHIM_NEXT(void (*)(long), "srand48")(seed);
    }
}

SHIM_API unsigned short *seed48(unsigned short seed[3])
{
    struct drand48_data *own = shim_drand48();
    if (own == NULL) {
        return SHIM_NEXT(unsigned short *(*)(unsigned short *), "seed48")(seed);
    }
    seed48_r(seed, own);
    return own->__old_x;
}

/* ---- what belongs to the whole process -------------------------------------
 */

SHIM_API int chdir(const char *path)
{
    if (poise_vrank_refuses("chdir")) {
        errno = ENOTSUP;
        return -1;
    }
    return SHIM_NEXT(int (*)(const char *), "chdir")(path);
}

SHIM_API int fchdir(int fd)
{
    if (poise_vrank_refuses("fchdir")) {
        errno = ENOTSUP;
        return -1;
    }
    return SHIM_NEXT(int (*)(int), "fchdir")(fd);
}
