/* One function on several threads, and the errors of all of them. */
#include "memory.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { PARALLEL_MAX = 1024 };

struct parallel_thread {
    pthread_t thread;
    bool started;
    unsigned index;
    graph_parallel_part *part;
    void *arg;
    int code;
    /* The error in that thread's context, which ends with it. */
    char *doing, *what, *why;
};

unsigned graph_threads(unsigned threads)
{
    if (threads == 0) {
        cpu_set_t set;
        /* Machines with more processors than the set has bits: just one. */
        threads = sched_getaffinity(0, sizeof set, &set) == 0
                      ? (unsigned)CPU_COUNT(&set)
                      : 1;
    }
    return threads > PARALLEL_MAX ? PARALLEL_MAX : threads;
}

static void *parallel_main(void *arg)
{
    struct parallel_thread *self = arg;
    self->code = self->part(self->index, self->arg);
    if (self->code < 0) {
        const struct poise_error *err = poise_error_last();
        self->doing = strdup(err->doing);
        self->what = strdup(err->what);
        self->why = strdup(err->why);
    }
    return NULL;
}

/* Wait for a thread; put its error into force unless there is one already. */
static void parallel_join(struct parallel_thread *thread, int *code)
{
    if (!thread->started) {
        return;
    }
    pthread_join(thread->thread, NULL);
    if (*code >= 0 && thread->code < 0) {
        *code = thread->code;
        poise_error_set(-thread->code,
                        thread->doing ? thread->doing : "run a thread",
                        thread->what, thread->why ? "%s" : NULL, thread->why);
    }
    free(thread->doing);
    free(thread->what);
    free(thread->why);
}

int graph_parallel(unsigned threads, graph_parallel_part *part, void *arg)
{
    threads = graph_threads(threads);
    struct parallel_thread *all = NULL;
    if (threads > 1) {
        all = poise_alloc(threads, sizeof *all);
        if (!all) {
            return -ENOMEM;
        }
    }
    for (unsigned i = 1; i < threads; i++) {
        all[i].index = i;
        all[i].part = part;
        all[i].arg = arg;
        all[i].started =
            pthread_create(&all[i].thread, NULL, parallel_main, &all[i]) == 0;
    }
    int code = part(0, arg);
    for (unsigned i = 1; i < threads; i++) {
        parallel_join(&all[i], &code);
    }
    free(all);
    return code;
}

void graph_share(const struct poise_world *world, uint64_t all, uint64_t *first,
                 uint64_t *count)
{
    uint64_t size = world ? (uint64_t)poise_world_size(world) : 1;
    uint64_t rank = world ? (uint64_t)poise_world_rank(world) : 0;
    uint64_t each = all / size, more = all % size;
    *first = rank * each + (rank < more ? rank : more);
    *count = each + (rank < more);
}

int graph_agree(struct poise_world *world, int code)
{
    return world ? poise_world_agree(world, code) : code;
}
