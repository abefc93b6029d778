/*
 * poise/find.h - entries that match an expression, with the words and meanings
 * of GNU find, in parallel.
 */
#ifndef POISE_FIND_H
#define POISE_FIND_H

#include <poise/walk.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A compiled find expression: immutable, shared by all workers. */
struct poise_walk_find;

/** Whether the word is one that stands before find's start paths: -H, -L, -P,
 * -O0 to -O9. */
POISE_API bool poise_walk_find_leads(const char *word);
/**
 * Compile the arguments of find without its start paths: what stands before
 * them, ended by "--" or the first other word, then tests, actions, operators;
 * names and meanings of GNU find. Characters of names, their order and upper
 * case are those of the locale (setlocale). Local; -EINVAL names the word at
 * fault, and the nearest known one.
 */
POISE_API int poise_walk_find_compile(int argc, const char *const *argv,
                                      struct poise_walk_find **out);
POISE_API void poise_walk_find_destroy(struct poise_walk_find *find);
/** The file of -files0-from, whose NUL-ended names are the operands ("-":
 * standard input; never so together with -ok); NULL: none. */
POISE_API const char *
poise_walk_find_roots_file(const struct poise_walk_find *find);

struct poise_walk_find_options {
    struct poise_walk_options walk; /**< roots, pool; depth limits and -xdev
                                         come from the expression */
    const struct poise_walk_find *find;
    /** Commands run several at a time and in any order, on all ranks, each
     * one's standard output kept whole (and in memory, up to its end). Else an
     * expression that runs commands, quits, or deletes what other tests or
     * actions may see is evaluated by one worker of rank 0, entry by entry in
     * the order of GNU find (POISE_WALK_ORDER_DIRECTORY), and so is what it
     * prints; so is any expression of one process over operands of the command
     * line that are no directories. Not together with -ok: -EINVAL. */
    bool parallel;
    /** All in POISE_WALK_ORDER_NAME, by one worker of rank 0. */
    bool sorted;
    bool terminal; /**< `output` shows it on one, rank 0's: names have '?' for
                        what would steer it, but those of -print0 */
    /** Output bytes: whole lines (or NUL-ended records), on rank 0. */
    int (*output)(const void *data, size_t len, void *arg);
    int (*error)(struct poise_worker *worker, const struct poise_error *err,
                 void *arg);
    /** -ok and -okdir: put the question, return whether the answer is yes.
     * On rank 0, one call at a time. NULL: those actions are -ENOTSUP. */
    bool (*ask)(const char *question, size_t len, void *arg);
    void (*progress)(const struct poise_pool_stats *stats, void *arg);
    void *arg;
};
/** Collective; return codes as poise_walk_run (0 also after -quit). Output,
 * commands and deletions happen at least once if the job is resumed.
 * result->errors counts, besides what could not be read, entries that could
 * not be evaluated or deleted and failed commands of -exec ... {} +. */
POISE_API int poise_walk_find_run(struct poise_world *world,
                                  const struct poise_walk_find_options *opts,
                                  struct poise_walk_result *result);
/* ---- filters ------------------------------------------------------------ */

/** The tests of find without its actions: which entries another operation is
 * for. Each process compiles its own; all workers of its walk may use it, of
 * one walk at a time. */
struct poise_walk_filter;

/**
 * Compile a filter: tests, operators, -daystart, -regextype, -mindepth and
 * -maxdepth (of which entries are meant; the walk is not cut short). Local.
 * Ages count back from now. -EINVAL names the word at fault, as actions and
 * what governs a walk (-prune, -depth, -xdev) are here, or says that no words
 * were given. The words are copied. Free with poise_walk_filter_free.
 */
POISE_API int poise_walk_filter_parse(const char *const *words, size_t count,
                                      struct poise_walk_filter **out);
POISE_API void poise_walk_filter_free(struct poise_walk_filter *filter);
/** All ranks count ages back from rank 0's now. Collective; if either is
 * NULL there is nothing to do. */
POISE_API int poise_walk_filter_agree(struct poise_walk_filter *filter,
                                      struct poise_world *world);
/** Fields (STATX_*) that it looks at of every entry: for the walk's statx_mask,
 * which fetches them ahead. Others it fetches itself where it needs them. */
POISE_API unsigned
poise_walk_filter_mask(const struct poise_walk_filter *filter);
/**
 * Whether the entry of a running visit or leave is meant: 1 or 0. Negative
 * errno: a test could not be answered, so that the entry is better left alone;
 * it was counted and reported to the hook error already, as by
 * poise_walk_stat. -ENOMEM alone is not, and should end the walk.
 */
POISE_API int poise_walk_filter_match(struct poise_walk_filter *filter,
                                      const struct poise_walk_entry *entry);
/** The same, of metadata as they are at this moment, whatever the walk has of
 * them: before something is done that cannot be undone. */
POISE_API int poise_walk_filter_match_now(struct poise_walk_filter *filter,
                                          const struct poise_walk_entry *entry);

/** All primaries with one line of help each, for --help and completion:
 * pairs name, text; NULL-terminated. */
POISE_API const char *const *poise_walk_find_primaries(void);

#ifdef __cplusplus
}
#endif

#endif
