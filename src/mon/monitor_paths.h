/*
 * poise/monitor_paths.h - the ways through a tree, and which of them are alike.
 *
 * A path leads from a rank that nobody joins up to a root, and back. Its time
 * is made of stages, of which each place of the tree has its own; here they are
 * means over all calls. In a large tree most paths are alike: one of them
 * stands for the others.
 *
 * Source: thesis 7.1, 3 (timemap), figure 16 of part I (pathmap: branches
 * sorted into groups with similar performance). All functions are local.
 */
#ifndef POISE_MONITOR_PATHS_H
#define POISE_MONITOR_PATHS_H

#include <poise/monitor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum poise_monitor_stage {
    POISE_MONITOR_ARRIVAL_WAIT,   /**< for others that join the same rank */
    POISE_MONITOR_DOWN,           /**< the last one is there -> all are known */
    POISE_MONITOR_NETWORK,        /**< half of the two-way latency, each way */
    POISE_MONITOR_UP,             /**< the result is known -> first departure */
    POISE_MONITOR_DEPARTURE_WAIT, /**< until this one leaves */
    POISE_MONITOR_STAGES
};

/** A step of a path, at one rank. */
struct poise_monitor_step {
    int rank;
    enum poise_monitor_stage stage;
    double mean_ns;
};

/**
 * The steps from `leaf` to its root and back. Returns how many there are, of
 * which at most `max` are written; 0: nothing is known of this rank's place, or
 * the places make no tree.
 */
POISE_API int
poise_monitor_steps(const struct poise_monitor_operation *operation, int leaf,
                    struct poise_monitor_step *out, int max);

/** A group of paths that are alike. */
struct poise_monitor_path {
    int leaf;   /**< whose path stands for the group */
    int length; /**< ranks on it */
    int count;  /**< paths of the group */
    double stage_ns[POISE_MONITOR_STAGES]; /**< of the one that stands for it */
};

/**
 * Group the paths: those of a group are equally long, and differ in no stage by
 * more than an eighth of the time of the one that stands for it, which is less
 * than a plot of both would show. Returns the number of groups written, the
 * slowest first; paths that would need more than `max` groups join the one that
 * is nearest. 0: there are no hops. -ENOMEM.
 */
POISE_API int
poise_monitor_paths(const struct poise_monitor_operation *operation,
                    struct poise_monitor_path *out, int max);

#ifdef __cplusplus
}
#endif

#endif
