/*
 * libpoise-wan-mpich.so: a preload that lets programs of MPICH end.
 *
 * In MPI_Finalize, MPICH 4.0 over UCX closes its connections, waits until they
 * are closed, and then waits for the other processes by reading from its
 * launcher. While it reads it serves no connection, so a process that still
 * waits for an answer to a closed one waits for ever. Where messages take
 * milliseconds, this happens in about every third run. (Since 2023 MPICH does
 * not wait there: github.com/pmodels/mpich/pull/6596.) Here the thread that
 * began to close connections serves them for as long as it would wait in read.
 *
 * Nothing of MPICH or UCX is linked: in other programs these functions are
 * never called but for read, which goes on to the C library's.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/** More than MPICH makes; those beyond are not served. */
enum { WORKERS_MOST = 64 };

/** How long to sleep between two looks, in ms. */
enum { NAP_MS = 1 };

typedef int create_function(void *context, const void *params, void **worker);
typedef unsigned progress_function(void *worker);
typedef void destroy_function(void *worker);
typedef void *disconnect_function(void *endpoint);
typedef ssize_t read_function(int fd, void *data, size_t bytes);

EXPORT int ucp_worker_create(void *context, const void *params, void **worker);
EXPORT void ucp_worker_destroy(void *worker);
EXPORT void *ucp_disconnect_nb(void *endpoint);

/* What MPICH has of UCX. It makes workers in MPI_Init, in one thread. */
static struct {
    void *workers[WORKERS_MOST];
    size_t count;
    progress_function *progress;
    read_function *read; /* __atomic access */
} ucx;

/* Whether this thread closes connections. */
static __thread bool leaving;
/* Whether it serves them right now: UCX reads, too. */
static __thread bool serving;

/* The function of that name behind this one, as a pointer of any kind. */
#define BEHIND(type, name) ((type *)(size_t)dlsym(RTLD_NEXT, name))

int ucp_worker_create(void *context, const void *params, void **worker)
{
    int code =
        BEHIND(create_function, "ucp_worker_create")(context, params, worker);
    ucx.progress = BEHIND(progress_function, "ucp_worker_progress");
    if (code == 0 && ucx.progress && ucx.count < WORKERS_MOST) {
        ucx.workers[ucx.count++] = *worker;
    }
    return code;
}

void ucp_worker_destroy(void *worker)
{
    for (size_t i = 0; i < ucx.count; i++) {
        if (ucx.workers[i] == worker) {
            ucx.workers[i] = ucx.workers[--ucx.count];
        }
    }
    leaving = leaving && ucx.count > 0;
    BEHIND(destroy_function, "ucp_worker_destroy")(worker);
}

void *ucp_disconnect_nb(void *endpoint)
{
    leaving = ucx.count > 0;
    return BEHIND(disconnect_function, "ucp_disconnect_nb")(endpoint);
}

/* Until there is something to read, serve connections. */
static void serve(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLIN};
    serving = true;
    while (poll(&look, 1, NAP_MS) == 0) {
        for (size_t i = 0; i < ucx.count; i++) {
            ucx.progress(ucx.workers[i]);
        }
    }
    serving = false;
}

EXPORT ssize_t read(int fd, void *data, size_t bytes)
{
    read_function *next = __atomic_load_n(&ucx.read, __ATOMIC_RELAXED);
    if (!next) {
        next = BEHIND(read_function, "read");
        __atomic_store_n(&ucx.read, next, __ATOMIC_RELAXED);
    }
    if (leaving && !serving && !(fcntl(fd, F_GETFL) & O_NONBLOCK)) {
        serve(fd);
    }
    return next(fd, data, bytes);
}
