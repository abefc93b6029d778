/*
 * GNU find and GNU du as oracles: run them, run the library's in a world of
 * a given shape, and compare what they print, sorted. And a tree of documents
 * to run them on.
 */
#ifndef POISE_TESTS_WALK_ORACLE_H
#define POISE_TESTS_WALK_ORACLE_H

#include "../ranks.h"
#include "tree.h"

#include <poise/comm.h>
#include <poise/walk.h>

enum { ORACLE_WORDS = 64, ORACLE_SHAPES = 12 };

/** How the library runs: ranks (0: no world), threads, policy, split. */
struct oracle_shape {
    int ranks;
    unsigned threads;
    enum poise_policy policy;
    enum poise_split split;
};

/** A pairwise cover of ranks, threads (where a policy has them), policies and
 * splits. */
extern const struct oracle_shape oracle_shapes[ORACLE_SHAPES];
void oracle_shape_set(struct poise_walk_options *walk,
                      const struct oracle_shape *shape);

/** Words of a line, separated by single blanks. `line` is written to. */
int oracle_split(char *line, const char **words);
/** Records that end in a newline or NUL, sorted. */
void oracle_records(const struct poise_buf *text, struct tree_list *out);
/** Run a program; its standard output is appended to `out`. The exit code. */
int oracle_run(const char *const *argv, struct poise_buf *out);

/** Call `one` on every rank of a world of `ranks` threads, or with NULL if
 * `ranks` is 0. The code of rank 0; all ranks must agree. */
int oracle_world(int ranks, rank_fn one, void *arg);

/** What the library's program did with some words. */
struct oracle_answer {
    struct poise_buf out;
    int code;
    uint64_t errors;
};
/** Run `program`, and `ours` with the same words (none of them its name), which
 * fills in `answer`. Both must print the same and agree on whether it failed.
 */
void oracle_compare(const char *program, const char *words,
                    const struct oracle_shape *shape,
                    void (*ours)(const struct oracle_shape *shape, int argc,
                                 const char *const *argv,
                                 struct oracle_answer *answer));

/** Make a folder `name` such as /usr/share/doc: many folders with a few files
 * of all sizes, hard and symbolic links between them, some of them empty. */
void oracle_documents(int dirfd, const char *name);

#endif
