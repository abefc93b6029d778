/*
 * poise/du.h - disk usage of directories, with the figures and the order of
 * GNU du, in parallel.
 */
#ifndef POISE_DU_H
#define POISE_DU_H

#include <poise/walk.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_walk_du_options {
    struct poise_walk_options walk;
    bool apparent;    /**< sizes instead of disk usage */
    bool inodes;      /**< count inodes instead */
    bool count_links; /**< -l: a hard-linked file counts each time */
    bool all;         /**< -a: a line for files too */
    bool separate;    /**< -S: without subdirectories */
    bool total;       /**< -c: a grand total at the end */
    bool has_max_depth;
    uint32_t max_depth;         /**< lines for at most this depth */
    const char *const *exclude; /**< shell patterns, as du --exclude */
    size_t exclude_count;
    int (*error)(struct poise_worker *worker, const struct poise_error *err,
                 void *arg);
    /** One line: bytes (or inodes) and path; on rank 0, in the order of GNU du
     * for directories (children first), operands in order. `path` NULL: the
     * grand total. */
    int (*line)(uint64_t amount, const char *path, size_t path_len, void *arg);
    void (*progress)(const struct poise_pool_stats *stats, void *arg);
    void *arg;
};
/** Collective; return codes as poise_walk_run. */
POISE_API int poise_walk_du(struct poise_world *world,
                            const struct poise_walk_du_options *options,
                            struct poise_walk_result *result);

#ifdef __cplusplus
}
#endif

#endif
