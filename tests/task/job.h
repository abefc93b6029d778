/*
 * What the tests of the task pool in one process share: a job that counts the
 * nodes of a tree, one task a node.
 */
#ifndef POISE_TESTS_TASK_JOB_H
#define POISE_TESTS_TASK_JOB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "task/internal.h"

#include "tree.h"

#include <errno.h>

/** One run: what the workers counted, committed and not. */
struct job {
    struct tree tree;
    struct tree_sum committed; /**< atomic */
    struct tree_sum private[8];
    int broken;       /**< tasks that were not intact */
    unsigned slices;  /**< commit this often inside a task */
    uint64_t stop_at; /**< node count at which to stop; 0: never */
    int stop_value;   /**< its value; negative: an error */
    uint64_t live;    /**< boxes in existence (box_ functions) */
    uint64_t delivered;
    uint64_t received;
};

extern const struct tree small_tree, large_tree;

struct job job_of(struct tree tree);
/** Hooks that run the job; those of a pool whose tasks are the nodes. */
struct poise_pool_hooks job_hooks(struct job *job);
int job_run(struct poise_worker *worker, const void *task, size_t len,
            void *arg);
void job_commit(struct poise_worker *worker, void *arg);
/** What running a node is made of: count it; add a task for each child. */
int job_visit(struct poise_worker *worker, struct job *job,
              const struct tree_node *node, size_t len);
int job_add_children(struct poise_worker *worker, struct job *job,
                     const struct tree_node *node);
/** Run from the root on. `out`, if not NULL, receives the pool, to be
 * destroyed. */
int job_go(struct job *job, const struct poise_pool_hooks *hooks,
           const struct poise_pool_options *options, struct poise_pool **out);

#endif
