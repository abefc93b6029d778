/*
 * What the tests of the walk's engine share: callbacks that collect what they
 * see, and the tree of most tests with the truth about it.
 */
#ifndef TEST_WALK_SIDE_H
#define TEST_WALK_SIDE_H

#include "tree.h"

#include <poise/walk.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/** What callbacks collect, and how they answer. */
struct seen {
    struct tree_list paths, left;
    uint64_t bytes;              /* __atomic */
    unsigned errors, last_error; /* __atomic */
    unsigned types[16];          /* __atomic */
    const char *skip, *stop;     /* names */
    bool stat, dirfd, count_only;
    uint64_t count; /* __atomic */
    int (*extra)(struct poise_walk_entry *entry, struct seen *seen);
};

/** The callbacks; `arg` is a struct seen. */
int seen_visit(struct poise_walk_entry *entry, void *arg);
int seen_leave(struct poise_walk_entry *entry, void *arg);
int seen_error(struct poise_worker *worker, const struct poise_error *err,
               void *arg);
/** A walk in this process; the paths are sorted. */
int seen_walk(const struct poise_walk_options *options, struct seen *seen,
              struct poise_walk_result *result);
void seen_free(struct seen *seen);

/** The tree, its descriptor, and all paths in it. */
extern char side_where[256];
extern int side_fd;
extern struct tree_list side_truth;
int side_set_up(void **state);
int side_tear_down(void **state);
/** Of that tree, with two threads. */
struct poise_walk_options side_options(void);

#endif
