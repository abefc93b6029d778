/*
 * Functions of the C library that keep state for a process, or block it, as a
 * virtual rank needs them. In a rank's copies of its program and libraries they
 * stand in for the C library's (load.h); nobody else sees them.
 *
 *   shim.c         the end, waiting, strtok, random numbers, the working
 *                  directory
 *   shim_env.c     the environment
 *   shim_getopt.c  command lines
 *   shim_stdio.c   standard output and input
 *   shim_heap.c    memory, where contexts are swapped
 *
 * On a thread of the program's that runs no rank they are the C library's.
 */
#ifndef POISE_VRANK_SHIM_H
#define POISE_VRANK_SHIM_H

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
    struct poise_buf line;    /**< of its standard output, not ended yet */
    char **first_environment; /**< owned; what it started with */
};

/** Once for rank number `number` of the job; -ENOMEM, or why its standard
 * streams cannot be opened. Free it after an error, too. */
int libc_create(struct vrank_libc *own, int number);
/** Write what is left of its standard output. */
void libc_flush(struct vrank_libc *own);
void libc_free(struct vrank_libc *own);
/** The data that are a rank's own, and where they are. */
enum { LIBC_DATA = 9 };
extern const char *const libc_data_names[];
void libc_data(struct vrank_libc *own, void *out[LIBC_DATA]);

/** The state of the rank that runs; NULL on a thread that is none's. */
struct vrank_libc *libc_now(void);

/** One function that stands in. */
struct shim {
    const char *name; /**< NULL ends a table */
    void (*function)(void);
};
#define SHIM(name)                                                             \
    {                                                                          \
#name, (void (*)(void))shim_##name                                     \
    }
extern const struct shim shim_process[], shim_env[], shim_getopt[],
    shim_stdio[], shim_heap[];

/** What stands for the C library's function `name`, or NULL. `swapped`: the
 * memory of ranks is their contexts'. */
void *shim_find(const char *name, bool swapped);

/** malloc and free of the rank that runs. */
void *shim_malloc(size_t bytes);
void shim_free(void *ptr);

#endif
