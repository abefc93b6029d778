/*
 * poise/remove.h - remove trees of files, in parallel.
 *
 * Files go when they are visited, a directory when the last thing below it is
 * gone, by whoever removed that: nobody waits for a level of the tree to be
 * empty. Symbolic links are removed, never followed, also where somebody puts
 * one in a directory's place meanwhile: names are removed relative to the
 * descriptor of their directory, which is opened without following links.
 *
 * What was removed is gone, and what was not is as it was: a removal that was
 * interrupted or killed goes on when it is run again.
 */
#ifndef POISE_REMOVE_H
#define POISE_REMOVE_H

#include <poise/find.h>
#include <poise/walk.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_remove_options {
    /** roots, pool, descriptors; the rest is set by the removal. Slashes that
     * an operand ends in count for nothing. No checkpoints: -EINVAL. */
    struct poise_walk_options walk;
    /** Remove only what it matches, and a directory only if all in it goes: it
     * is asked before that, so that its age counts as found. Everything else is
     * asked right before it is removed. NULL: all. Borrowed. */
    struct poise_walk_filter *filter;
    bool dry_run;       /**< change nothing */
    bool force;         /**< operands that do not exist are no error */
    bool enter_mounted; /**< remove also what is on other file systems than an
                             operand; else their mount points are errors */
    bool remove_root;   /**< do not refuse "/", whatever it is called */
    /** What cannot be removed or is refused: one call each. `worker` is NULL
     * before the walk begins. 0 goes on, negative stops. */
    int (*error)(struct poise_worker *worker, const struct poise_error *err,
                 void *arg);
    /** Each entry that was removed (or would be): `len` bytes of its path, on
     * rank 0. Costs time. Negative stops. */
    int (*removed)(const char *path, size_t len, bool directory, void *arg);
    /** As in struct poise_walk_hooks. */
    void (*progress)(const struct poise_pool_stats *stats, void *arg);
    void *arg;
};

/** Over all ranks. */
struct poise_remove_result {
    uint64_t files; /**< removed, or would be: all but directories */
    uint64_t directories;
    uint64_t kept;   /**< entries that the filter did not match */
    uint64_t errors; /**< operands refused, entries left in spite of all */
    struct poise_walk_result walk;
};

/**
 * Remove the operands with all that is below them. Refused are operands that
 * end in "." or "..", and "/". Collective over `world` (NULL: this process).
 * Returns on all ranks alike: 0 (also if some could not be removed: see
 * result->errors), -EINTR after an interrupt, or the first error that ended
 * it. Free what `result` holds with poise_remove_result_free.
 */
POISE_API int poise_remove_run(struct poise_world *world,
                               const struct poise_remove_options *options,
                               struct poise_remove_result *result);
POISE_API void poise_remove_result_free(struct poise_remove_result *result);

/** Remove one entry of a directory (`dirfd` may be AT_FDCWD) with all that is
 * below it on the same file system, in this thread. 0 as well if there is
 * none; else the first error, though as much as can be is removed. Local. */
POISE_API int poise_walk_remove(int dirfd, const char *name);

#ifdef __cplusplus
}
#endif

#endif
