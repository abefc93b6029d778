/*
 * Between the C library's functions that libpoise-vmpi puts in front (shim.c)
 * and the run that knows whose state they are about (libc.c).
 */
#ifndef POISE_VRANK_SHIM_H
#define POISE_VRANK_SHIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define SHIM_API __attribute__((visibility("default")))

/** What the C library keeps once for a process and a rank has for itself. */
struct vrank_libc {
    char *optarg;
    int optind, opterr, optopt;
    char *option_next;             /**< within a word of short options */
    int option_first, option_last; /**< operands passed over so far */
    FILE *out; /**< its standard output; owned; NULL: the process's */
    FILE *in;
    char **environment; /**< owned, as are its strings from `env_own` on */
    char *token;        /**< strtok's */
    struct random_data random;
    char random_state[128];
    struct drand48_data drand48;
    bool has_random, has_drand48;
};

/** The state of the rank that runs; NULL on a thread that is none's. */
SHIM_API struct vrank_libc *poise_vrank_libc(void);
/** End the rank that runs; returns if none does. */
SHIM_API void poise_vrank_exit(int status);
/** End the job, as a process that calls _exit would its own; returns if no
 * rank runs. */
SHIM_API void poise_vrank_quit(int status, const char *call);
/** Let others run; false if no rank runs. */
SHIM_API bool poise_vrank_yield(void);
/** The same until `deadline_ns` of poise_clock_ns. */
SHIM_API bool poise_vrank_sleep(const char *call, uint64_t deadline_ns);
/** A call that only a process of its own could obey. True if it is to be
 * refused, which is said once. */
SHIM_API bool poise_vrank_refuses(const char *call);

#endif
