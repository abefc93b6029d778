/*
 * poise/tune.h - find the tree that fits, while it is used.
 *
 * A tuner is given the calls of an operation as a monitor puts them together
 * (<poise/monitor.h>), over one tree at a time, and says which tree to use
 * next, and why. It knows no communication: whoever makes the calls swaps the
 * trees (poise_coll_propose). There are three ways to choose (thesis, figure
 * 10): a static rule, measurements of given trees, and an analysis of where the
 * time goes.
 *
 * The analysis learns from each hop's times what a message costs: the way from
 * one host to another, and how long a host is busy with each message. From that
 * follows what calls over any tree would take, and which path is the slowest.
 * The part of the tree that lies on it is changed, calls over the new tree are
 * measured, and so on until nothing is to be gained. Then the tuner watches,
 * and begins again when calls come to take longer, or less.
 *
 * All functions are local; a tuner is used by one thread at a time.
 *
 * Source: thesis 7.1, 3 and 4 (hot spots, moving partial reductions, levels),
 * 2.2.1.2 (what to do about arrival, load and network), figure 10.
 */
#ifndef POISE_TUNE_H
#define POISE_TUNE_H

#include <poise/monitor.h>
#include <poise/tree.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_tuner;

enum poise_tune_method {
    POISE_TUNE_ANALYSE, /**< change the part that holds calls up */
    POISE_TUNE_MEASURE, /**< use each of `trees` once, then the fastest */
    POISE_TUNE_RULE     /**< flat for long messages, else binary: of `trees`
                           the one called so */
};

/** What most of a call's slowest path goes into. */
enum poise_tune_cause {
    POISE_TUNE_NONE,
    POISE_TUNE_ARRIVAL,   /**< a rank comes later than the others by itself */
    POISE_TUNE_NETWORK,   /**< ways between hosts */
    POISE_TUNE_DEPARTURE, /**< messages that wait for others of their host */
    POISE_TUNE_LOAD,      /**< a host that is slower with each message than
                             hosts are on average */
    POISE_TUNE_CAUSES
};
/** "arrival", "network", ... */
POISE_API const char *poise_tune_cause_name(enum poise_tune_cause cause);

/** What is called; broadcasts and reductions have rank 0 as their root. */
enum poise_tune_operation {
    POISE_TUNE_ALLREDUCE,
    POISE_TUNE_BARRIER,
    POISE_TUNE_ALLGATHER,
    POISE_TUNE_BROADCAST,
    POISE_TUNE_REDUCE,
    POISE_TUNE_OPERATIONS
};
/** "allreduce", "barrier", ... */
POISE_API const char *
poise_tune_operation_name(enum poise_tune_operation operation);
/** Whether calls of it do not wait for each other, so that what counts is the
 * time from the last arrival to the last departure. */
POISE_API bool
poise_tune_operation_is_one_way(enum poise_tune_operation operation);

/** A tree to begin with, to compare with, or to choose from. */
struct poise_tune_tree {
    const char *name;
    struct poise_coll_tree *tree;
    int shape; /**< alike: the same but for the root; less than their count */
};

struct poise_tune_options {
    enum poise_tune_method method;
    enum poise_tune_operation operation;
    /** Where ranks are, [size]; borrowed until poise_tuner_create returns. */
    const struct poise_placement *places;
    /** What may be chosen; borrowed as long as the tuner. The analysis also
     * makes trees of its own, and can do without. */
    const struct poise_tune_tree *trees;
    int tree_count;
    size_t bytes;   /**< of a call, for the rule */
    int trials_max; /**< trees that the analysis may use; 0: a fifth of `trees`,
                       but 3 at least and 16 at most */
    double worth;   /**< a gain of less counts as none, and after four such
                       trials in a row the analysis ends; 0: 0.02 */
    double change;  /**< of a settled call's time that is a change; 0: 0.2 */
    /** Calls are a program's, which does something else between them: what
     * counts is the time from the last arrival to the last departure, not that
     * from one call to the next. */
    bool of_program;
};

/** A tuner of calls that go over `tree` (copied), of `size` ranks. */
POISE_API int poise_tuner_create(const struct poise_coll_tree *tree, int size,
                                 const struct poise_tune_options *options,
                                 struct poise_tuner **out);
POISE_API void poise_tuner_destroy(struct poise_tuner *tuner);

/** Calls of a trial that the analysis looks at; of more the first. Odd, so that
 * a median is one of them. Source: more than the some 10 that outliers of 1 in
 * 5 leave room for. */
#define POISE_TUNE_CALLS 33

/** Add a call of the present tree: spans[rank], with hops, in order of their
 * sequence. A call whose hops are missing, or are of another tree, is ignored,
 * as are those behind the first POISE_TUNE_CALLS: false. */
POISE_API bool poise_tuner_add(struct poise_tuner *tuner,
                               const struct poise_monitor_span *spans);

struct poise_tune_step {
    bool is_new;      /**< use another tree from now on */
    bool is_settled;  /**< nothing is to be gained at present */
    bool has_changed; /**< calls take another time than they did: all begins
                         anew */
    /** Of the next calls, owned by the tuner until the next step. */
    const struct poise_coll_tree *tree;
    const char *reason; /**< one sentence, as long */
    enum poise_tune_cause cause;
    double call_ns;     /**< what a call took, with what is between two calls;
                           0: no calls were added */
    double expected_ns; /**< what it is expected to take next; 0: unknown */
    int trials;         /**< trees that were measured since the beginning, or
                           the last change */
};
/** End a trial: look at its calls and say what comes next. -ENOMEM. */
POISE_API int poise_tuner_step(struct poise_tuner *tuner,
                               struct poise_tune_step *out);
/** The fastest tree so far, and what a call over it took; owned by the tuner
 * until the next step. */
POISE_API const struct poise_coll_tree *
poise_tuner_best(const struct poise_tuner *tuner, double *call_ns);

/**
 * All trees to choose from: each generator of <poise/tree.h> and, of those,
 * each with the lowest rank of every node in turn in the place of the first
 * root; no tree twice. Owned by the caller: poise_tune_trees_free.
 */
POISE_API int poise_tune_trees_make(const struct poise_placement *places,
                                    int size, struct poise_tune_tree **out,
                                    int *count);
POISE_API void poise_tune_trees_free(struct poise_tune_tree *trees, int count);

/* ---- calls to tune by -----------------------------------------------------
 */

/** Calls over a handle of its own, whose hops are recorded. */
struct poise_tune_loop;

/** A loop that begins with `tree`, NULL: as poise_coll_create, for messages of
 * up to `bytes_max`. Records go into memory, or into the trace in
 * force: ranks that are threads of one process need one (poise_trace_use).
 * Collective over the world, which must outlive it; agrees. */
POISE_API int poise_tune_loop_create(struct poise_world *world,
                                     const struct poise_coll_tree *tree,
                                     size_t bytes_max,
                                     struct poise_tune_loop **out);
/** Calls are allreduces until this says otherwise; between trials. Collective;
 * agrees. -ENOMEM: as before. */
POISE_API int poise_tune_loop_operation(struct poise_tune_loop *loop,
                                        enum poise_tune_operation operation);
/** Collective. NULL is allowed. */
POISE_API void poise_tune_loop_destroy(struct poise_tune_loop *loop);

/** What calls went into, as a monitor blames them: sums over calls. */
struct poise_tune_shares {
    int calls;      /**< seen whole */
    double call_ns; /**< a call of this rank, on average, with what is between
                       two calls */
    double latency_ns; /**< from the last arrival to the last departure */
    double longest_ns; /**< the longest call: no sum */
    double arrival_ns, reduce_ns, broadcast_ns;
};
/**
 * Make two calls that are not looked at, by which a new tree comes into use,
 * then `calls` of `bytes`, and gather their records to rank 0: into
 * `tuner` there, which others pass as NULL. Collective; agrees.
 */
POISE_API int poise_tune_loop_trial(struct poise_tune_loop *loop, size_t bytes,
                                    int calls, struct poise_tuner *tuner,
                                    struct poise_tune_shares *out);
/** Use `tree` from the next trial on. By rank 0. */
POISE_API int poise_tune_loop_use(struct poise_tune_loop *loop,
                                  const struct poise_coll_tree *tree);
POISE_API const struct poise_coll_tree *
poise_tune_loop_tree(const struct poise_tune_loop *loop);

/* ---- a program that runs --------------------------------------------------
 */

/**
 * Tunes the tree of a program's MPI_COMM_WORLD while it runs: is told of its
 * calls by a monitor, and writes the tree that comes next into the file at
 * which the program's rank 0 looks (POISE_TREE_WATCH, docs/tune.md). Of
 * allreduces and barriers it is the kind that counts in which ranks spend most
 * time at first: an operation, with messages that differ in length by less than
 * four times.
 */
struct poise_tune_live;

/** Told of each trial, `number` from 1; `step` until it returns. Of a settled
 * tree that stays so the reason is empty. */
typedef void poise_tune_live_fn(const struct poise_tune_step *step, int number,
                                void *arg);

struct poise_tune_live_options {
    const char *path; /**< the tree file; copied */
    /** Where ranks are: by their hosts, as the scope that the monitor's reader
     * reads has them, borrowed; else as `topology` says (poise_world_options).
     */
    const struct poise_scope *scope;
    const char *topology;
    poise_tune_live_fn *tell; /**< NULL: nobody is told */
    void *arg;
};
/** The monitor is borrowed, and outlives it. -ENOMEM; -ENOSPC: as
 * poise_monitor_on_call. */
POISE_API int
poise_tune_live_create(struct poise_monitor *monitor,
                       const struct poise_tune_live_options *options,
                       struct poise_tune_live **out);
POISE_API void poise_tune_live_destroy(struct poise_tune_live *live);
/** Look at the calls that have come: behind each poll of the reader. An error
 * ends the tuning for good: -ENOMEM, or of writing the file. */
POISE_API int poise_tune_live_look(struct poise_tune_live *live);

struct poise_tune_live_state {
    const char *operation; /**< that is tuned for; NULL: none has come */
    uint64_t bytes;        /**< of a rank's part */
    double first_ns;       /**< a call over the first tree, or behind the last
                              change */
    double best_ns;        /**< over the best one */
    uint64_t waited;       /**< calls since the last tree was written that still
                              went over another one */
    int trials, trees;     /**< and how many trees were used in them */
    int changes;           /**< of load or links, behind which all began anew */
    bool is_settled;
};
/** What came of it; the file holds the best tree. The program has ended, or may
 * go on. Errors of poise_tune_live_look. */
POISE_API int poise_tune_live_end(struct poise_tune_live *live,
                                  struct poise_tune_live_state *out);

#ifdef __cplusplus
}
#endif

#endif
