/*
 * poise/du.h - disk usage of directories, with the figures and the order of
 * GNU du, in parallel.
 */
#ifndef POISE_DU_H
#define POISE_DU_H

#include <poise/walk.h>

#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

enum poise_du_time { /**< which time of each entry */
                     POISE_DU_NO_TIME,
                     POISE_DU_MTIME,
                     POISE_DU_ATIME,
                     POISE_DU_CTIME
};

/** A line of the result. */
struct poise_walk_du_line {
    uint64_t amount;        /**< bytes, or inodes */
    struct timespec newest; /**< with `time`: of all that the line counts */
    bool timed;             /**< `newest` is there: something was counted */
    const char *path;       /**< not NUL-terminated; NULL: the grand total */
    size_t path_len;
};

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
    int64_t threshold; /**< leave out lines of less than that, or, if negative,
                            of more than its negative; 0: none */
    bool dereference_roots; /**< -D: follow symbolic links among the operands */
    bool dereference;       /**< -L: follow all; then one thread of rank 0 does
                                 the work in the order of GNU du, and remembers
                                 every inode (40 bytes each) unless count_links.
                                 walk.pool.interrupt is heeded, no other option
                                 of the pool */
    /** A file with several names is charged to the one that GNU du would read
     * first in directories as they are, which are read again for that; else to
     * the one whose path is first in the order of bytes. */
    bool charge_as_read;
    enum poise_du_time time;
    int (*error)(struct poise_worker *worker, const struct poise_error *err,
                 void *arg);
    /** One line; on rank 0, children first, siblings by the bytes of their
     * names, operands in order, the grand total at the end. */
    int (*line)(const struct poise_walk_du_line *line, void *arg);
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
