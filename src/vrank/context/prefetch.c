/*
 * Contexts that come before they are needed. While a rank runs, a thread
 * beside its worker brings the context of the one that is next, and writes
 * what has to go for it: computing and the disk overlap.
 *
 * A worker leaves one wish, the latest, under the lock of all contexts. The
 * thread waits for nothing but the disk: neither for room, nor for parts that
 * are under way, nor for a context that is busy; and it evicts none that was
 * itself prefetched and not used yet. What it cannot do then, the worker does
 * when it resumes the rank.
 *
 * Source: pems, future work 1.
 */
#include "internal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Only where so many of its size fit: that of the rank that runs, one that it
 * needs beside, and this. */
#define PREFETCH_LEAST 3

struct prefetcher {
    pthread_t thread;
    bool is_started;
    struct context *wanted; /* NULL: none */
};

/* Under the lock, which is let go meanwhile. */
static void prefetch_bring(struct contexts *all, struct context *context)
{
    if (!context->busy) {
        quick_claim(all, context);
    }
    if (context->busy || context->quick || context->unseen ||
        context->opens > 0 || context->holds > 0 || context->is_retired ||
        __atomic_load_n(&context->parts, __ATOMIC_ACQUIRE) > 0) {
        return;
    }
    /* Not before: the wish may be old, and the rank run and change its heap,
     * for which it takes no lock. While it is not open nothing changes it. */
    if (context_most(context) > all->plan.budget_bytes / PREFETCH_LEAST) {
        return;
    }
    context_occupy(all, context);
    context->is_prefetched = true;
    context_bring(all, context, true, false);
    context_enlist(all, context);
    context_free_up(all, context);
}

static void *prefetch_main(void *arg)
{
    struct prefetcher *prefetcher = arg;
    struct contexts *all = contexts;

    pthread_mutex_lock(&all->lock);
    while (!all->ends) {
        struct context *context = prefetcher->wanted;
        prefetcher->wanted = NULL;
        if (context != NULL) {
            prefetch_bring(all, context);
        } else {
            pthread_cond_wait(&all->asked, &all->lock);
        }
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

void context_prefetch(struct context *context)
{
    struct contexts *all = contexts;

    if (all->prefetchers == NULL || context_is_resident(context)) {
        return;
    }
    pthread_mutex_lock(&all->lock);
    all->prefetchers[vrank_here->number].wanted = context;
    pthread_cond_broadcast(&all->asked);
    pthread_mutex_unlock(&all->lock);
}

int prefetch_begin(struct contexts *all)
{
    sigset_t every, before;

    all->prefetchers =
        poise_alloc((size_t)all->threads, sizeof *all->prefetchers);
    if (all->prefetchers == NULL) {
        return -ENOMEM;
    }
    /* A program's signals are for its ranks. If a thread does not start, the
     * run goes on without it. */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    for (int i = 0; i < all->threads; i++) {
        struct prefetcher *prefetcher = &all->prefetchers[i];
        prefetcher->is_started = pthread_create(&prefetcher->thread, NULL,
                                                prefetch_main, prefetcher) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return 0;
}

void prefetch_end(struct contexts *all)
{
    if (all->prefetchers == NULL) {
        return;
    }
    pthread_mutex_lock(&all->lock);
    all->ends = true;
    pthread_cond_broadcast(&all->asked);
    pthread_mutex_unlock(&all->lock);
    for (int i = 0; i < all->threads; i++) {
        if (all->prefetchers[i].is_started) {
            pthread_join(all->prefetchers[i].thread, NULL);
        }
    }
    free(all->prefetchers);
    all->prefetchers = NULL;
}
