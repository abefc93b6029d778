/*
 * A library that is preloaded into poise: reads and writes move less than they
 * were asked for, or are interrupted, as they may at any time. What goes past
 * the page cache moves whole pages.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

SHOWN ssize_t pread64(int fd, void *to, size_t len, off_t at);
SHOWN ssize_t pwrite64(int fd, const void *from, size_t len, off_t at);
SHOWN ssize_t read(int fd, void *to, size_t len);
SHOWN ssize_t write(int fd, const void *from, size_t len);

enum { PAGE = 4096, INTERRUPTED = 16, SHORT = 3 };

/* Other programs that it starts are left alone. */
static int is_meant(void)
{
    return strcmp(program_invocation_short_name, "poise") == 0;
}

/* What is moved of `len` bytes; 0: it is interrupted. */
static size_t moved(size_t len)
{
    static uint64_t state = 1;
    uint64_t x =
        __atomic_add_fetch(&state, 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED);

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    if (!is_meant() || len == 0) {
        return len;
    }
    if (x % INTERRUPTED == 0) {
        errno = EINTR;
        return 0;
    }
    if (len > PAGE && x / INTERRUPTED % SHORT == 0) {
        return (x >> 32) % ((len - 1) / PAGE) * PAGE + PAGE;
    }
    return len;
}

ssize_t pread64(int fd, void *to, size_t len, off_t at)
{
    ssize_t (*next)(int, void *, size_t, off_t);
    size_t some = moved(len);

    *(void **)&next = dlsym(RTLD_NEXT, "pread64");
    return some == 0 && len > 0 ? -1 : next(fd, to, some, at);
}

ssize_t pwrite64(int fd, const void *from, size_t len, off_t at)
{
    ssize_t (*next)(int, const void *, size_t, off_t);
    size_t some = moved(len);

    *(void **)&next = dlsym(RTLD_NEXT, "pwrite64");
    return some == 0 && len > 0 ? -1 : next(fd, from, some, at);
}

ssize_t read(int fd, void *to, size_t len)
{
    ssize_t (*next)(int, void *, size_t);
    size_t some = moved(len);

    *(void **)&next = dlsym(RTLD_NEXT, "read");
    return some == 0 && len > 0 ? -1 : next(fd, to, some);
}

ssize_t write(int fd, const void *from, size_t len)
{
    ssize_t (*next)(int, const void *, size_t);
    size_t some = moved(len);

    *(void **)&next = dlsym(RTLD_NEXT, "write");
    return some == 0 && len > 0 ? -1 : next(fd, from, some);
}
