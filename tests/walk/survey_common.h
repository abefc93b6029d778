/*
 * What the tests of the survey share: a tree, a plain recursion over it that
 * knows what a survey must say, runs over ranks in this process, and readers of
 * inventories.
 */
#ifndef TEST_SURVEY_COMMON_H
#define TEST_SURVEY_COMMON_H

#include "walk/survey/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "../temporary.h"

enum { SURVEY_TOP = 7 };

struct item {
    char *path;
    struct stat st;
    uint32_t depth;
    uint64_t width; /* of directories */
};
struct truth {
    struct item *items;
    size_t count, cap;
};

/** A directory of our own, the tree below it, and what is in that. */
extern char survey_place[TEMPORARY_BYTES];
extern char survey_tree[TEMPORARY_MORE];
extern struct truth survey_truth;

/** Build the tree once for a group of tests; remove it. */
int survey_set_up(void **state);
int survey_tear_down(void **state);

struct poise_walk_survey_options survey_options(unsigned threads);
/** On `ranks` ranks; 0: without a world. Rank 0's summary. */
int survey_run(int ranks, const struct poise_walk_survey_options *options,
               struct poise_walk_summary *out);

/* A line of a top list; of an inode with several names the smallest. */
struct line {
    uint64_t value;
    const char *path;
    ino_t ino;
};

struct expected {
    struct poise_walk_summary sums;
    struct line *sizes, *widths; /* of inodes and directories, in order */
    size_t size_count, width_count;
};

/** Owned by the caller: sizes and widths. */
struct expected survey_expect(int64_t now_ns);
/** The summary is that of the tree. */
void survey_check(const struct poise_walk_summary *got, int64_t now_ns);

/** The inventory has every entry of the tree once (survey_inventory.c). */
void survey_check_inventory(enum poise_walk_format format, const char *path);
/** Nothing of ours may be left beside the tree but `name`. */
void survey_check_litter(const char *name);
/** All of a file; owned by the caller. */
char *survey_slurp(const char *path, size_t *len);

#endif
