/*
 * How a rank ends by itself, other than by coming back from main: as a process
 * would. What that means for the others is MPI's to say (vrank_mpi_ops).
 */
#include "libc_wrap.h"

#include "loader.h"
#include "vrank/thread/rank.h"

#include <pthread.h>
#include <unistd.h>

/** What a rank gave to atexit, at_quick_exit, or for an object of C++. */
struct libc_handler {
    struct libc_handler *next;
    void (*function)(void *arg);
    void *arg, *object;
};

static bool handler_add(struct libc_handler **list, void (*function)(void *),
                        void *arg, void *object)
{
    struct libc_handler *handler = poise_alloc(1, sizeof *handler);
    if (handler == NULL) {
        return false;
    }
    *handler = (struct libc_handler){
        .next = *list, .function = function, .arg = arg, .object = object};
    *list = handler;
    return true;
}

/* Those of `object`, or all where it is NULL, the last first. One that ends the
 * rank in turn has been removed before. */
static void handlers_run(struct libc_handler **list, const void *object)
{
    struct libc_handler **at = list;
    while (*at != NULL) {
        struct libc_handler *handler = *at;
        if (object != NULL && handler->object != object) {
            at = &handler->next;
            continue;
        }
        void (*function)(void *arg) = handler->function;
        void *arg = handler->arg;
        *at = handler->next;
        free(handler);
        function(arg);
        /* It may have added some. */
        at = list;
    }
}

void libc_handlers_run(struct vrank_libc *own)
{
    handlers_run(&own->at_exit, NULL);
}

void libc_handlers_free(struct vrank_libc *own)
{
    struct libc_handler **lists[] = {&own->at_exit, &own->at_quick_exit};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        while (*lists[i] != NULL) {
            struct libc_handler *next = (*lists[i])->next;
            free(*lists[i]);
            *lists[i] = next;
        }
    }
}

static int wrap___cxa_atexit(void (*function)(void *), void *arg, void *object)
{
    struct vrank_libc *own = libc_now();
    bool added =
        own != NULL && handler_add(&own->at_exit, function, arg, object);
    return added ? 0 : -1;
}

static int wrap___cxa_at_quick_exit(void (*function)(void *), void *object)
{
    struct vrank_libc *own = libc_now();
    bool added =
        own != NULL && handler_add(&own->at_quick_exit, function, NULL, object);
    return added ? 0 : -1;
}

/* What each object calls as it ends. */
static void wrap___cxa_finalize(void *object)
{
    struct vrank_libc *own = libc_now();
    if (own != NULL) {
        handlers_run(&own->at_exit, object);
    }
}

/* The rank that runs, or on another thread of the program's the job's end. */
static struct vrank *end_self(const char *call, int status)
{
    struct vrank *self = vrank_self();
    if (self == NULL) {
        vrank_abort(status & 0xff,
                    "a thread that is no virtual rank's called %s", call);
        _exit(status & 0xff);
    }
    return self;
}

static void wrap_exit(int status)
{
    load_rank_end(end_self("exit", status)->program);
    vrank_exit(status & 0xff);
}

/* Nothing of the program's is called, and nothing written. */
static void end_at_once(const char *call, int status)
{
    load_rank_leave(end_self(call, status)->program);
    vrank_exit(status & 0xff);
}

static void wrap__exit(int status)
{
    end_at_once("_exit", status);
}

static void wrap_quick_exit(int status)
{
    struct vrank_libc *own = &end_self("quick_exit", status)->program->libc;
    handlers_run(&own->at_quick_exit, NULL);
    end_at_once("quick_exit", status);
}

/* The thread of a rank is the worker's, on which others go on. A process whose
 * first thread ends so goes on until its last one ends; threads of a rank are
 * not known here. */
static void wrap_pthread_exit(void *value)
{
    struct vrank *self = vrank_self();
    if (self == NULL) {
        pthread_exit(value);
    }
    vrank_say_once(VRANK_ONCE_THREADS,
                   "virtual rank %d called pthread_exit, which ends it as "
                   "exit(0): other threads that it made are not waited for",
                   vrank_number(self));
    wrap_exit(0);
}

const struct libc_wrap wrap_end[] = {
    WRAP(exit),
    WRAP(_exit),
    {"_Exit", (void (*)(void))wrap__exit},
    WRAP(quick_exit),
    WRAP(__cxa_atexit),
    WRAP(__cxa_at_quick_exit),
    WRAP(__cxa_finalize),
    WRAP(pthread_exit),
    {"thrd_exit", (void (*)(void))wrap_pthread_exit},
    {NULL, NULL},
};
