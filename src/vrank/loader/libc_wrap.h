/*
 * Functions of the C library that keep state for a process, or block it, as a
 * virtual rank needs them. In a rank's private images these wrappers stand in
 * for the C library's (loader.h); other code does not see them.
 *
 *   libc.c         the state of a rank: streams, environment, getopt, ...
 *   libc_end.c     how a rank ends by itself
 *   libc_wrap.c    waiting, strtok, random numbers, the working directory
 *   libc_env.c     the environment
 *   libc_getopt.c  command lines
 *   libc_stdio.c   standard output and input
 *   libc_heap.c    memory, where contexts are swapped
 *
 * On a thread of the program's that runs no rank they are the C library's.
 */
#ifndef POISE_VRANK_LIBC_WRAP_H
#define POISE_VRANK_LIBC_WRAP_H

#include <poise/core.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/** What the C library keeps once for a process and a rank has for itself. */
struct vrank_libc {
    char *optarg;
    int optind, opterr, optopt;
    char *option_next;             /**< within a word of short options */
    int option_first, option_last; /**< operands passed over so far */
    FILE *out;                     /**< its standard output */
    FILE *in;
    char **environment;
    char *token; /**< strtok's */
    struct random_data random;
    char random_state[128];
    struct drand48_data drand48;
    bool has_random;
    bool is_discarded; /**< what is left of its output goes nowhere */
    /** What it is to call, the last first; owned. */
    struct libc_handler *at_exit, *at_quick_exit;
    struct poise_buf line;    /**< of its standard output, not ended yet */
    char **first_environment; /**< owned; what it started with */
};

/** Once for rank number `number` of the job; -ENOMEM, or why its standard
 * streams cannot be opened. Free it after an error, too. */
int libc_create(struct vrank_libc *own, int number);
/** Write what is left of its standard output. */
void libc_flush(struct vrank_libc *own);
/** It is not to be written, as of a process that calls _exit. */
void libc_discard(struct vrank_libc *own);
/** Call what the rank gave to atexit, the last first; and what is left where
 * one of these ends the rank in turn. On the rank's stack (libc_end.c). */
void libc_handlers_run(struct vrank_libc *own);
void libc_handlers_free(struct vrank_libc *own);
void libc_free(struct vrank_libc *own);
/** The data that are a rank's own, and where they are. */
enum { LIBC_DATA = 9 };
extern const char *const libc_data_names[];
void libc_data(struct vrank_libc *own, void *out[LIBC_DATA]);

/** The state of the rank that runs; NULL on a thread that is none's. */
struct vrank_libc *libc_now(void);

/** One wrapper. */
struct libc_wrap {
    const char *name; /**< NULL ends a table */
    void (*function)(void);
};
#define WRAP(name)                                                             \
    {                                                                          \
#name, (void (*)(void))wrap_##name                                     \
    }
extern const struct libc_wrap wrap_end[], wrap_process[], wrap_env[],
    wrap_getopt[], wrap_stdio[], wrap_heap[];

/** What stands for the C library's function `name`, or NULL. `swapped`: the
 * memory of ranks is their contexts'. */
void *wrap_find(const char *name, bool swapped);

/** malloc and free of the rank that runs. */
void *wrap_malloc(size_t bytes);
void wrap_free(void *ptr);

#endif
