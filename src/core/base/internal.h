/*
 * Shared inside room core/base: what a context consists of.
 */
#ifndef POISE_CORE_INTERNAL_H
#define POISE_CORE_INTERNAL_H

#include <poise/base.h>
#include <poise/core.h>

/** Bytes of error text that a context holds without allocating. */
#define CTX_ERROR_BYTES 240

/** What a context consists of. All of it belongs to the thread that has the
 * context in force; no other thread looks inside. */
struct poise_ctx {
    struct poise_error error;          /**< its strings are in one of: */
    char error_small[CTX_ERROR_BYTES]; /**< the strings, where they fit */
    char *error_big; /**< owned; NULL where small holds them */
    struct poise_rng rng;
    bool rng_seeded;
    bool own; /**< a kernel thread's own, in its thread-local storage */
    void (*yield)(void *arg);
    void *yield_arg;
};

#endif
