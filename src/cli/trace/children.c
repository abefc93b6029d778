/*
 * The lower ends of a gather, run by the shell, each behind a pair of sockets;
 * and a thread that asks them while something else goes on.
 */
#include "children.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- children ----------------------------------------------------------- */

/* The other end of a pair of sockets, run by the shell. */
static pid_t start(const char *command, int ends[2])
{
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_IGN); /* it ends when it is asked no more */
        if (dup2(ends[1], 0) < 0 || dup2(ends[1], 1) < 0) {
            _exit(126);
        }
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static int add(struct poise_gather *gather, const char *command, pid_t *pid)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        return poise_error_set(errno, "start", command, NULL);
    }
    *pid = start(command, ends);
    int error = errno;
    close(ends[1]);
    if (*pid < 0) {
        close(ends[0]);
        return poise_error_set(error, "start", command, NULL);
    }
    return poise_gather_add(gather, ends[0], ends[0], command);
}

int trace_children_start(const char *path,
                         const struct poise_gather_options *how,
                         const struct poise_strings *commands,
                         struct trace_children **out)
{
    struct trace_children *children = poise_alloc(1, sizeof *children);
    int code = children ? 0 : -ENOMEM;
    if (code == 0) {
        children->pids = poise_alloc(commands->count, sizeof *children->pids);
        code = children->pids
                   ? poise_gather_create(path, how, &children->gather)
                   : -ENOMEM;
    }
    for (size_t i = 0; code == 0 && i < commands->count; i++) {
        children->count++;
        code = add(children->gather, commands->items[i], &children->pids[i]);
    }
    if (code < 0) {
        trace_children_end(children);
        return code;
    }
    *out = children;
    return 0;
}

void trace_children_end(struct trace_children *children)
{
    if (!children) {
        return;
    }
    poise_gather_destroy(children->gather);
    for (size_t i = 0; i < children->count; i++) {
        if (children->pids[i] > 0) {
            waitpid(children->pids[i], NULL, 0);
        }
    }
    free(children->pids);
    free(children);
}

bool trace_child_is_done(const struct poise_gather_child *child)
{
    return child->files > 0 && child->ended >= child->files;
}

bool trace_children_are_good(const char *command,
                             const struct poise_gather *gather, bool early)
{
    bool good = true;
    for (unsigned i = 0; i < poise_gather_children(gather); i++) {
        struct poise_gather_child child;
        poise_gather_child(gather, i, &child);
        if (child.code < 0) {
            cli_say(command, "'%s': %s", child.name, strerror(-child.code));
            good = false;
        } else if (child.gone && !early && !trace_child_is_done(&child)) {
            cli_say(command, "'%s' ended before what it sends", child.name);
            good = false;
        } else if (!early && child.files == 0) {
            cli_say(command, "'%s' sent nothing: no rank wrote where it looks",
                    child.name);
            good = false;
        }
    }
    return good;
}

/* ---- beside a program --------------------------------------------------- */

#define INTERVAL_NS 100000000
/* A host that stands still for a while is waited for: a line that is cut off
 * closes by itself. */
#define TIMEOUT_NS UINT64_C(60000000000)

struct trace_gathering {
    const char *command;
    struct trace_children *children;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool ending; /* under the mutex */
    bool ended;  /* the thread was waited for */
};

/* An interval, or until it ends: whether it goes on. */
static bool goes_on(struct trace_gathering *gathering)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += INTERVAL_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&gathering->mutex);
    int code = 0;
    while (!gathering->ending && code == 0) {
        code =
            pthread_cond_timedwait(&gathering->wake, &gathering->mutex, &until);
    }
    bool more = !gathering->ending;
    pthread_mutex_unlock(&gathering->mutex);
    return more;
}

static void *ask(void *arg)
{
    struct trace_gathering *gathering = arg;
    struct poise_gather *gather = gathering->children->gather;
    do {
        while (poise_gather_poll(gather, false) > 0) {
        }
    } while (goes_on(gathering));
    while (poise_gather_poll(gather, true) > 0) {
    }
    return NULL;
}

int trace_gathering_start(const char *command, const char *path,
                          const struct poise_strings *commands,
                          struct trace_gathering **out)
{
    struct poise_gather_options how = {.parallel = true,
                                       .timeout_ns = TIMEOUT_NS};
    struct trace_gathering *gathering = poise_alloc(1, sizeof *gathering);
    if (!gathering) {
        return -ENOMEM;
    }
    gathering->command = command;
    pthread_mutex_init(&gathering->mutex, NULL);
    pthread_cond_init(&gathering->wake, NULL);
    int code = trace_children_start(path, &how, commands, &gathering->children);
    if (code == 0) {
        int error = pthread_create(&gathering->thread, NULL, ask, gathering);
        code = error ? poise_error_set(error, "gather records", path, NULL) : 0;
    }
    if (code < 0) {
        trace_children_end(gathering->children);
        free(gathering);
        return code;
    }
    *out = gathering;
    return 0;
}

void trace_gathering_finish(struct trace_gathering *gathering)
{
    if (!gathering || gathering->ended) {
        return;
    }
    pthread_mutex_lock(&gathering->mutex);
    gathering->ending = true;
    pthread_cond_signal(&gathering->wake);
    pthread_mutex_unlock(&gathering->mutex);
    pthread_join(gathering->thread, NULL);
    gathering->ended = true;
}

void trace_gathering_end(struct trace_gathering *gathering)
{
    if (!gathering) {
        return;
    }
    trace_gathering_finish(gathering);
    trace_children_are_good(gathering->command, gathering->children->gather,
                            false);
    trace_children_end(gathering->children);
    pthread_mutex_destroy(&gathering->mutex);
    pthread_cond_destroy(&gathering->wake);
    free(gathering);
}
