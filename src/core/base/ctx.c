/*
 * The execution context. Each kernel thread has one in its thread-local
 * storage, so that there always is one, however short memory is. A user-level
 * thread brings its own and puts it in force by poise_ctx_swap.
 *
 * A compiler may compute the address of a thread-local variable once and keep
 * it over a call, in which a user-level thread can move to another kernel
 * thread. Therefore every access to the two variables below goes through
 * functions that are never inlined and about which the compiler knows
 * nothing.
 */
#include "internal.h"

#include <pthread.h>
#include <stdlib.h>

#if defined(__clang__)
#define CTX_OPAQUE __attribute__((noinline))
#else
#define CTX_OPAQUE __attribute__((noipa))
#endif
/** Keeps a compiler from finding out that a function only reads. */
#define CTX_BARRIER() __asm__ volatile("" ::: "memory")

/* Per thread: that is what an execution context is about. The pointer is NULL
 * before the first use; 8 bytes of the space that the loader keeps
 * for fast thread-local storage. */
static _Thread_local struct poise_ctx ctx_own;
__attribute__((tls_model(
    "initial-exec"))) static _Thread_local struct poise_ctx *ctx_in_force;

/* Global because a key serves the whole process; set before main. */
static pthread_key_t ctx_key;
static bool ctx_key_made;

static void ctx_clean(struct poise_ctx *ctx)
{
    free(ctx->error_big);
    ctx->error_big = NULL;
    ctx->error = (struct poise_error){.doing = "", .what = "", .why = ""};
}

/* Runs at thread exit. Destructors of others that run later may set errors
 * again; then the context is registered once more and this runs again. */
static void ctx_at_thread_exit(void *arg)
{
    struct poise_ctx *ctx = arg;
    ctx_clean(ctx);
    if (ctx_in_force == ctx) {
        ctx_in_force = NULL;
    }
}

__attribute__((constructor(101))) static void ctx_make_key(void)
{
    ctx_key_made = pthread_key_create(&ctx_key, ctx_at_thread_exit) == 0;
}

/* The main thread leaves by exit, which runs no key destructors. */
__attribute__((destructor(101))) static void ctx_delete_key(void)
{
    ctx_clean(&ctx_own);
    if (ctx_key_made) {
        pthread_key_delete(ctx_key);
        ctx_key_made = false;
    }
}

static void ctx_init(struct poise_ctx *ctx)
{
    ctx->error.doing = ctx->error.what = ctx->error.why = "";
}

/* Put the thread's own context in force, ready for use. */
CTX_OPAQUE static struct poise_ctx *ctx_take_own(void)
{
    struct poise_ctx *ctx = &ctx_own;
    CTX_BARRIER();
    if (!ctx->own) {
        ctx->own = true;
        ctx_init(ctx);
    }
    if (ctx_key_made) {
        /* Should this fail, error_big leaks at thread exit: no more. */
        pthread_setspecific(ctx_key, ctx);
    }
    ctx_in_force = ctx;
    return ctx;
}

CTX_OPAQUE struct poise_ctx *poise_ctx_current(void)
{
    struct poise_ctx *ctx = ctx_in_force;
    CTX_BARRIER();
    return __builtin_expect(ctx != NULL, 1) ? ctx : ctx_take_own();
}

CTX_OPAQUE struct poise_ctx *poise_ctx_swap(struct poise_ctx *next)
{
    struct poise_ctx *was = ctx_in_force;
    CTX_BARRIER();
    /* NULL is replaced by the thread's own at its next use. */
    ctx_in_force = next;
    return was != NULL && was->own ? NULL : was;
}

struct poise_ctx *poise_ctx_create(void)
{
    struct poise_ctx *ctx = poise_alloc(1, sizeof *ctx);
    if (ctx != NULL) {
        ctx_init(ctx);
    }
    return ctx;
}

void poise_ctx_destroy(struct poise_ctx *ctx)
{
    if (ctx == NULL) {
        return;
    }
    struct poise_ctx *was = poise_ctx_swap(NULL);
    if (was != ctx) {
        poise_ctx_swap(was);
    }
    ctx_clean(ctx);
    free(ctx);
}

void poise_ctx_set_yield(void (*yield)(void *arg), void *arg)
{
    struct poise_ctx *ctx = poise_ctx_current();
    ctx->yield = yield;
    ctx->yield_arg = arg;
}
