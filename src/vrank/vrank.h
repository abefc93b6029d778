/*
 * poise/vrank.h - virtual MPI ranks: an ordinary MPI program run with more
 * ranks than processes.
 *
 * Source: latency-bandwidth-thesis ch. 3, 7.4, 8.3; pems ch. 4.
 */
#ifndef POISE_VRANK_H
#define POISE_VRANK_H

#include <poise/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a run ends with when it failed by itself, not by its program: as of
 * every command that runs another (125: failed, 126: the program cannot be
 * run, 127: there is no such program). */
#define POISE_VRANK_FAILED 125
#define POISE_VRANK_CANNOT_RUN 126
#define POISE_VRANK_NOT_FOUND 127

/** Which of the ready ranks of a kernel thread runs next. Source:
 * latency-bandwidth-thesis 8.3.4 and 3.3. */
enum poise_vrank_policy {
    POISE_VRANK_ROUND_ROBIN, /**< the one that has waited longest */
    POISE_VRANK_SERIAL,      /**< the same, but one kernel thread at a time */
    POISE_VRANK_PRIORITY,    /**< those with neighbours in other processes
                                  first */
    POISE_VRANK_COSCHEDULE,  /**< messages before any computation */
    POISE_VRANK_UNBLOCKED,   /**< the one just unblocked, at once */
    POISE_VRANK_POLICIES
};
/** Their names; ends with NULL. */
POISE_API extern const char *const poise_vrank_policy_names[];

/** Which ranks a process holds. */
enum poise_vrank_placement {
    POISE_VRANK_BLOCK,  /**< consecutive ones */
    POISE_VRANK_CYCLIC, /**< rank r in process r mod P */
    POISE_VRANK_PLACEMENTS
};
POISE_API extern const char *const poise_vrank_placement_names[];

/* ---- compiling ------------------------------------------------------------
 */

/**
 * The command line by which `compiler` ("gcc") compiles or links a program for
 * virtual ranks, from the words after the wrapper's name (NULL-terminated).
 * Understands what mpicc does; *only_show: the user wants to see it (-show,
 * -showme, -showme:compile, -showme:link, -compile_info, -link_info). Free
 * with poise_vrank_line_free. -EINVAL for what cannot be linked so (-static),
 * -ENOENT where files of Poise are missing.
 */
POISE_API int poise_vrank_compiler_line(const char *compiler, char *const *args,
                                        bool *only_show, char ***out);
POISE_API void poise_vrank_line_free(char **line);

/* ---- running --------------------------------------------------------------
 */

/** Zero is the default of every member. */
struct poise_vrank_options {
    int count;   /**< V, virtual ranks in all; 0: one for each process */
    int threads; /**< of each process; 0: 1 */
    enum poise_vrank_policy policy;
    enum poise_vrank_placement placement;
    size_t stack_bytes;         /**< of each rank; 0: 8 MiB */
    uint64_t delay_ns;          /**< one way, between processes */
    uint64_t delay_bytes_per_s; /**< 0: as fast as it goes */
    /** Says a line (its end is not there) to the user. Any thread, also in a
     * signal handler. NULL: nobody is told. */
    void (*say)(const char *line, void *arg);
    /** Ends the process with a status, where the run ends before its ranks.
     * NULL: poise_vrank_run returns as soon as all ranks call MPI. */
    void (*die)(int status, void *arg);
    void *arg;
};

/**
 * Run the program argv[0] (linked by `poise cc`; searched for as the shell
 * does) with the arguments argv, as this process's part of a job: a launcher's
 * if one started us, else alone. *status is its exit status: the first of a
 * rank that was not 0. -ENOENT: no such program; -EACCES, -ENOEXEC, -ENOTSUP:
 * it cannot be run so; -ENOMEM: its copies would not fit. Once in a process.
 *
 * Collective under a launcher.
 */
POISE_API int poise_vrank_run(const struct poise_vrank_options *options,
                              char **argv, int *status);

#ifdef __cplusplus
}
#endif

#endif
