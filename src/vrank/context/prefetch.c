/*
 * Contexts that come before they are needed. While a rank runs, a thread
 * beside its worker brings the context of the one that is next, and writes
 * what has to go for it: computing and the disk overlap.
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
#define AHEAD_LEAST 3

struct ahead {
    pthread_t thread;
    bool is_started;
    struct context *wanted; /* NULL: nothing to do */
};

/* Under the lock, which is let go meanwhile. Nothing is waited for but the
 * disk: if it cannot come now it comes when it is needed. */
static void ahead_bring(struct contexts *all, struct context *context)
{
    struct context *shell;
    uint64_t bytes = context->heap.charged;

    if (context->busy || context->state != CONTEXT_AWAY ||
        __atomic_load_n(&context->parts, __ATOMIC_ACQUIRE) > 0 ||
        bytes > all->plan.budget_bytes / AHEAD_LEAST) {
        return;
    }
    context->busy = true;
    if (contexts_room(all, bytes, false, &shell)) {
        context->is_ahead = true;
        context_fill(all, context, shell);
        context->last_use = ++all->clock;
    }
    context_free_up(all, context);
}

static void *ahead_main(void *arg)
{
    struct ahead *ahead = arg;
    struct contexts *all = contexts;

    pthread_mutex_lock(&all->lock);
    while (!all->ends) {
        struct context *context = ahead->wanted;
        ahead->wanted = NULL;
        if (context != NULL) {
            ahead_bring(all, context);
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

    if (all->ahead == NULL ||
        __atomic_load_n(&context->state, __ATOMIC_RELAXED) == CONTEXT_PRESENT) {
        return;
    }
    pthread_mutex_lock(&all->lock);
    all->ahead[vrank_here->number].wanted = context;
    pthread_cond_broadcast(&all->asked);
    pthread_mutex_unlock(&all->lock);
}

int ahead_begin(struct contexts *all)
{
    sigset_t every, before;

    all->ahead = poise_alloc((size_t)all->threads, sizeof *all->ahead);
    if (all->ahead == NULL) {
        return -ENOMEM;
    }
    /* A program's signals are for its ranks. One that does not start is
     * missed by nobody. */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    for (int i = 0; i < all->threads; i++) {
        struct ahead *ahead = &all->ahead[i];
        ahead->is_started =
            pthread_create(&ahead->thread, NULL, ahead_main, ahead) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return 0;
}

void ahead_end(struct contexts *all)
{
    if (all->ahead == NULL) {
        return;
    }
    pthread_mutex_lock(&all->lock);
    all->ends = true;
    pthread_cond_broadcast(&all->asked);
    pthread_mutex_unlock(&all->lock);
    for (int i = 0; i < all->threads; i++) {
        if (all->ahead[i].is_started) {
            pthread_join(all->ahead[i].thread, NULL);
        }
    }
    free(all->ahead);
    all->ahead = NULL;
}
