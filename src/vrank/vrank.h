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

#ifdef __cplusplus
}
#endif

#endif
