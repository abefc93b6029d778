/* What each worker of a run has for itself. */
#include "walk/engine/engine.h"

#include <poise/core.h>

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 128 }; /* two cache lines: they are fetched in pairs */

void walk_spaces_init(struct walk_spaces *spaces)
{
    *spaces = (struct walk_spaces){0};
    pthread_mutex_init(&spaces->lock, NULL);
}

void walk_spaces_free(struct walk_spaces *spaces)
{
    free(spaces->all);
    pthread_mutex_destroy(&spaces->lock);
}

/* With the lock held: the array, begun; NULL: no memory. */
static char *make(struct walk_spaces *spaces, size_t size, unsigned count,
                  void (*begin)(void *space, unsigned index, void *arg),
                  void *arg)
{
    char *all = NULL;
    if (size <= (SIZE_MAX - ALIGNMENT) / count) {
        size_t bytes = (size * count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        all = aligned_alloc(ALIGNMENT, bytes);
        if (all) {
            memset(all, 0, bytes);
        }
    }
    if (!all) {
        poise_error_set(ENOMEM, "allocate memory", NULL, NULL);
        return NULL;
    }
    for (unsigned i = 0; begin && i < count; i++) {
        begin(all + i * size, i, arg);
    }
    spaces->count = count;
    __atomic_store_n(&spaces->all, all, __ATOMIC_RELEASE);
    return all;
}

void *walk_space(struct walk_spaces *spaces, size_t size, unsigned index,
                 unsigned count,
                 void (*begin)(void *space, unsigned index, void *arg),
                 void *arg)
{
    char *all = __atomic_load_n(&spaces->all, __ATOMIC_ACQUIRE);
    if (!all) {
        pthread_mutex_lock(&spaces->lock);
        all = spaces->all ? spaces->all : make(spaces, size, count, begin, arg);
        pthread_mutex_unlock(&spaces->lock);
    }
    return all ? all + index * size : NULL;
}

void *walk_worker_space(struct walk_spaces *spaces, size_t size,
                        struct poise_worker *worker,
                        void (*begin)(void *space, unsigned index, void *arg),
                        void *arg)
{
    return walk_space(spaces, size, poise_worker_index(worker),
                      poise_pool_workers(poise_worker_pool(worker)), begin,
                      arg);
}
