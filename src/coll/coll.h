/*
 * poise/coll.h - collectives that fit an uneven machine.
 *
 * Ranks of one node share memory; between nodes there are messages. Every
 * function here that is marked Collective is called by every rank of the world
 * it was made over, in the same order; set-up functions agree on one code on
 * every rank. A handle is used by the thread that made it.
 *
 * Waiting spins briefly, then yields the processor, then sleeps on a futex, so
 * that more ranks than processors do no harm. A rank of the same node that
 * died while others wait for it is named (-EOWNERDEAD); across nodes it is the
 * launcher that ends the job.
 */
#ifndef POISE_COLL_H
#define POISE_COLL_H

#include <poise/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- trees -----------------------------------------------------------------
 *
 * A tree says which rank joins which. A rank and those that join it are a
 * joint: their values meet there, in shared memory where they sit on one node,
 * by messages else. Several roots are joined all to all (MagPIe), so that a
 * value crosses a wide-area link once. A tree file is described in
 * docs/formats.md.
 *
 * Source: thesis 7.1, 7.3 (PATHS, spanning trees), MagPIe.
 */

struct poise_coll_tree;

/**
 * Generate a tree from what the world knows about seats. `shape` is one of
 *     flat, binary, kary:K, binomial      over all ranks
 *     node[:SHAPE]    ranks join their node's lowest, those by SHAPE
 *     site[:SHAPE]    the same in each site; site roots join the first
 *     magpie[:SHAPE]  the same, but the site roots are joined all to all
 * (SHAPE is one of the first line, default binomial), or "default": magpie on
 * several sites, else node. Local. Owned by the caller. -EINVAL.
 */
POISE_API int poise_coll_tree_make(const struct poise_world *world,
                                   const char *shape,
                                   struct poise_coll_tree **out);
/**
 * Read a tree file on rank 0, and check it on every rank. Collective; agrees.
 * -EINVAL names the line: syntax, unknown rank or host, a cycle, a rank that
 * joins nobody, shared memory between nodes.
 */
POISE_API int poise_coll_tree_read(struct poise_world *world, const char *path,
                                   struct poise_coll_tree **out);
/** As a tree file. */
POISE_API int poise_coll_tree_write(const struct poise_coll_tree *tree,
                                    struct poise_buf *out);
POISE_API void poise_coll_tree_free(struct poise_coll_tree *tree);
/** Whom a rank joins; -1: nobody, it is a root. */
POISE_API int poise_coll_tree_parent(const struct poise_coll_tree *tree,
                                     int rank);

/* ---- collectives on trees --------------------------------------------------
 *
 * The rank's own value comes first at a joint, then those of its node that join
 * it, then the others, each in order of ranks. So results are the same, bit by
 * bit, in every run, if `reproducible` is set; else values of other nodes are
 * taken as they come.
 *
 * Every call is a barrier for the ranks of a node that are joined by shared
 * memory, except a broadcast where they are all ranks: there the root goes on
 * before the others come. Where they are all ranks, and each process may read
 * the memory of the others (one user, no hardening against it), long vectors go
 * from memory to memory, without a copy between. Errors on the data path: a
 * rank that finds one (a dead rank, another call elsewhere, no memory) passes
 * its code on through the tree, and those who wait for it return that code from
 * this call, others from the next one; the handle is of no use then but to be
 * destroyed. Counts, types, operations and roots must be the same on all ranks:
 * -EPROTO names a rank that differs.
 */

struct poise_coll;

enum poise_coll_type {
    POISE_INT8,
    POISE_INT16,
    POISE_INT32,
    POISE_INT64,
    POISE_UINT8,
    POISE_UINT16,
    POISE_UINT32,
    POISE_UINT64,
    POISE_FLOAT,
    POISE_DOUBLE,
    POISE_COLL_TYPES
};
/** Integers wrap around. MIN and MAX of floating-point numbers leave NaN out
 * unless there is nothing else (fmin, fmax). Bits and logic: integers only. */
enum poise_coll_op {
    POISE_OP_SUM,
    POISE_OP_PROD,
    POISE_OP_MIN,
    POISE_OP_MAX,
    POISE_OP_BAND,
    POISE_OP_BOR,
    POISE_OP_BXOR,
    POISE_OP_LAND,
    POISE_OP_LOR,
    POISE_OP_LXOR,
    POISE_COLL_OPS
};

struct poise_coll_options {
    /** NULL: the tree file that POISE_TREE names, or the shape if it has no
     * '/' and no '.'; else the default. Borrowed, copied. */
    const struct poise_coll_tree *tree;
    bool reproducible;
    /** Longest piece that is worked on at once, per rank, in shared memory; 0:
     * 256 KiB. */
    size_t piece_bytes;
    /** Never read or write the memory of another process: all that is longer
     * than a piece goes through shared memory in pieces. */
    bool copied;
};

/** Collective over the world, which must outlive the handle; agrees on one
 * code. `options` may be NULL. */
POISE_API int poise_coll_create(struct poise_world *world,
                                const struct poise_coll_options *options,
                                struct poise_coll **out);
/** Collective. NULL is allowed. */
POISE_API void poise_coll_destroy(struct poise_coll *coll);

/** All of these are collective. `in` and `out` may be the same memory, or not
 * overlap. */
POISE_API int poise_coll_barrier(struct poise_coll *coll);
POISE_API int poise_coll_allreduce(struct poise_coll *coll, const void *in,
                                   void *out, size_t count,
                                   enum poise_coll_type type,
                                   enum poise_coll_op op);
/** `out` is written at the root only. */
POISE_API int poise_coll_reduce(struct poise_coll *coll, int root,
                                const void *in, void *out, size_t count,
                                enum poise_coll_type type,
                                enum poise_coll_op op);
POISE_API int poise_coll_broadcast(struct poise_coll *coll, int root,
                                   void *data, size_t bytes);
/** `bytes` from each rank, in order of ranks. */
POISE_API int poise_coll_gather(struct poise_coll *coll, int root,
                                const void *in, void *out, size_t bytes);
POISE_API int poise_coll_scatter(struct poise_coll *coll, int root,
                                 const void *in, void *out, size_t bytes);
POISE_API int poise_coll_allgather(struct poise_coll *coll, const void *in,
                                   void *out, size_t bytes);

/** `bytes` from each rank to each: item i of `in` goes to rank i, item i of
 * `out` comes from there. */
POISE_API int poise_coll_alltoall(struct poise_coll *coll, const void *in,
                                  void *out, size_t bytes);
/** Where an item lies, in bytes from the beginning. */
struct poise_coll_block {
    size_t offset, bytes;
};
/** The same with items of any length: to and from each rank a block of `in` and
 * of `out`, which must not overlap here. -EPROTO names a rank that sends
 * another length than is expected. */
POISE_API int poise_coll_alltoallv(struct poise_coll *coll, const void *in,
                                   const struct poise_coll_block *in_blocks,
                                   void *out,
                                   const struct poise_coll_block *out_blocks);

/** Whether long vectors go from one rank's memory to another's. The same on
 * all ranks. */
POISE_API bool poise_coll_is_direct(const struct poise_coll *coll);

/** A stage of one's own on the edge by which a rank joins another. */
struct poise_coll_stage {
    /** Applied to a value that goes towards the root, and to one that comes
     * back; `bytes` at `data`, in place; 0 or negative errno. NULL: nothing. */
    int (*to_root)(void *arg, void *data, size_t bytes);
    int (*from_root)(void *arg, void *data, size_t bytes);
    /** Called when the handle is destroyed. */
    void (*destroy)(void *arg);
    void *arg;
};
/**
 * Put a stage on the edge from `rank` to whom it joins, from the next call on:
 * it runs on `rank`, in reductions and broadcasts, on each piece. What comes
 * back through it is what `rank` and those below it get. Collective: others
 * pass NULL for the stage. The stage goes with the rank when trees are swapped.
 * -EINVAL: a root has no such edge.
 */
POISE_API int poise_coll_set_stage(struct poise_coll *coll, int rank,
                                   const struct poise_coll_stage *stage);

/**
 * Swap the tree without stopping: one rank proposes, the next allreduce,
 * barrier or allgather makes it known, and the call after that goes over the
 * new tree on all ranks. Of several proposals the highest rank's counts. Local;
 * the tree is copied.
 */
POISE_API int poise_coll_propose(struct poise_coll *coll,
                                 const struct poise_coll_tree *tree);
/** The tree of the next call, owned by the handle until it is swapped. */
POISE_API const struct poise_coll_tree *
poise_coll_tree_of(const struct poise_coll *coll);

struct poise_coll_stats {
    uint64_t calls; /**< pieces: one more for each piece of a long call */
    uint64_t swaps; /**< trees that were swapped */
    uint64_t shared_bytes; /**< put into shared memory by this rank */
    uint64_t direct_bytes; /**< read from, or written to, other ranks' memory */
    /** Sent by this rank in messages, by how far they went. */
    uint64_t sent_bytes[POISE_LEVELS], sent_messages[POISE_LEVELS];
};
POISE_API struct poise_coll_stats
poise_coll_stats(const struct poise_coll *coll);
/** Bytes that this rank sent to `rank`. */
POISE_API uint64_t poise_coll_link_bytes(const struct poise_coll *coll,
                                         int rank);

/* ---- the conditional allreduce ---------------------------------------------
 *
 * Many programs reduce a value only to test it: has it converged? The truth of
 * such a test is often certain before all values are known. A conditional
 * allreduce returns the truth as soon as it is: on the own site's values where
 * these are enough, else with what other sites have sent meanwhile, else it
 * waits. It is no barrier between sites.
 *
 * What is certain early, of a partial result: a sum of values declared >= 0, or
 * a maximum, can only grow, so '>' and '>=' may be found true, '<', '<=' and
 * '==' false; a sum of values <= 0, or a minimum, the mirror of that. A maximum
 * of values declared <= 0 is at most 0, a minimum of values >= 0 at least.
 * Nothing is certain of a sum of mixed signs. NaN: MIN and MAX leave it out, as
 * fmin and fmax do, and a partial of nothing else decides nothing; in a sum of
 * one sign it is refused; a sum of mixed signs is complete anyway, and NaN then
 * fails every test. Integers are summed without overflow.
 *
 * Sites' values are combined in the order of sites, and those of a site by the
 * reproducible tree; truths are those of that result.
 *
 * Source: thesis 7.3.
 */

struct poise_coll_if;

enum poise_coll_test {
    POISE_TEST_GREATER,
    POISE_TEST_GREATER_EQUAL,
    POISE_TEST_LESS,
    POISE_TEST_LESS_EQUAL,
    POISE_TEST_EQUAL,
    POISE_TEST_NONE, /**< nothing is asked: all wait for the result */
    POISE_COLL_TESTS
};
/** What the contributions are declared to be. */
enum poise_coll_sign {
    POISE_SIGN_ANY,
    POISE_SIGN_NOT_NEGATIVE, /**< >= 0, no NaN */
    POISE_SIGN_NOT_POSITIVE, /**< <= 0, no NaN */
};

struct poise_coll_condition {
    enum poise_coll_type type; /**< POISE_DOUBLE or POISE_INT64 */
    enum poise_coll_op op;     /**< SUM, MIN or MAX */
    enum poise_coll_test test; /**< result TEST constant */
    enum poise_coll_sign sign;
    double real;     /**< the constant, if the type is POISE_DOUBLE */
    int64_t integer; /**< the constant, if it is POISE_INT64 */
};

/** How a truth was found. */
enum poise_coll_how {
    POISE_HOW_LOCAL,      /**< on the site's own values */
    POISE_HOW_PREFETCHED, /**< with what had come already */
    POISE_HOW_WAITED,
};
struct poise_coll_verdict {
    bool truth;
    /** All values are in: `real` or `integer` is the result. */
    bool complete;
    enum poise_coll_how how;
    double real;
    int64_t integer;
};

/** A sequence of conditional allreduces. Collective over the world, which must
 * outlive it; agrees on one code. -EINVAL; -EPROTO: ranks differ. */
POISE_API int poise_coll_if_create(struct poise_world *world,
                                   const struct poise_coll_condition *condition,
                                   struct poise_coll_if **out);
/** Collective. NULL is allowed. */
POISE_API void poise_coll_if_destroy(struct poise_coll_if *cond);

/**
 * Contribute `value` (a double or an int64_t). All ranks of a site get the same
 * verdict, all sites the same truth. Collective, but a site may be ahead of
 * another by up to 64 calls; then it waits.
 *
 * -EDOM: this rank's value breaks the declared sign; or another rank's did:
 * the ranks of its site learn of it in the same call, other sites as the news
 * reach them, in whatever call they are in then (at most 64 later). -ERANGE:
 * the integer result does not fit, seen where it was complete. Afterwards it is
 * of no more use.
 */
POISE_API int poise_coll_allreduce_if(struct poise_coll_if *cond,
                                      const void *value,
                                      struct poise_coll_verdict *out);

/**
 * The same with another condition in this call, which is in place of the one
 * that the sequence was made with; all ranks pass the same. -EPROTO: a rank
 * passed another, which its site learns in the same call, others as the news
 * reach them.
 */
POISE_API int
poise_coll_allreduce_if_as(struct poise_coll_if *cond,
                           const struct poise_coll_condition *condition,
                           const void *value, struct poise_coll_verdict *out);

struct poise_coll_if_stats {
    uint64_t calls, local, prefetched, waited;
    uint64_t sent_bytes; /**< to other sites, by this rank */
};
POISE_API struct poise_coll_if_stats
poise_coll_if_stats(const struct poise_coll_if *cond);

/* ---- noise -----------------------------------------------------------------
 *
 * How much the operating system disturbs: each rank multiplies matrices for a
 * quantum of time, again and again, with or without an allreduce of 8 bytes
 * behind it. An iteration is delayed by a threshold if on at least one rank it
 * took longer than that rank's median by more than the threshold.
 *
 * Source: thesis 8.2, table 14.
 */

enum {
    POISE_NOISE_COMPUTATION,
    POISE_NOISE_ALLREDUCE,
    POISE_NOISE_ITERATION,
    POISE_NOISE_ROWS
};
enum { POISE_NOISE_THRESHOLDS = 4 };

struct poise_coll_noise_options {
    uint64_t quantum_ns; /**< 0: the mean of an allreduce by itself */
    uint32_t iterations;
    bool allreduce; /**< also communicate */
};
struct poise_coll_noise {
    uint64_t quantum_ns;
    /** The mean of an allreduce by itself; 2, 5, 10 ms. */
    uint64_t thresholds_ns[POISE_NOISE_THRESHOLDS];
    struct poise_coll_noise_row {
        double mean_ns, deviation_ns; /**< over all ranks and iterations */
        uint64_t delayed[POISE_NOISE_THRESHOLDS]; /**< iterations */
    } rows[POISE_NOISE_ROWS];
};
/** Collective; all get the same. -EINVAL: no iterations. */
POISE_API int poise_coll_noise(struct poise_coll *coll,
                               const struct poise_coll_noise_options *options,
                               struct poise_coll_noise *out);

/* ---- the shared allgather -------------------------------------------------
 *
 * A window is an array of bytes, one part of it from each rank, that all ranks
 * of a node see in one copy. Each rank writes its own part where it lies; an
 * exchange makes the parts of other nodes appear too.
 *
 * Source: numa-bfs III.A (sharing), III.B (parallel allgather).
 */

struct poise_coll_window;

/** Which memory is shared, and who talks to other nodes. */
enum poise_coll_sharing {
    /** One copy per node; all ranks of a node exchange with other nodes, each
     * for a colour of the parts: "par allgather", figure 7. */
    POISE_COLL_SHARED_PARALLEL,
    /** One copy per node; the lowest rank of each node exchanges: figure 5b.
     */
    POISE_COLL_SHARED_LEADER,
    /** A copy per rank; parts to the node's lowest rank, exchange, and back:
     * the three steps of figure 5a. A baseline. */
    POISE_COLL_PRIVATE_LEADER,
    /** A copy per rank, a ring over all ranks. A baseline. */
    POISE_COLL_PRIVATE,
};

struct poise_coll_window_options {
    enum poise_coll_sharing sharing;
    /** 1 (0 means 1) or 2. With one copy nobody may write to its part before
     * all ranks of the node are done with reading the whole. With two, parts
     * are written into the next copy while the current one is read, and an
     * exchange swaps them: no other synchronisation is needed. */
    int copies;
    /** The parts are bitmaps: what goes between nodes, of which all but a few
     * bits are zero, goes as the positions of these. */
    bool sparse;
};

/** Time and bytes of this rank's exchanges so far. */
struct poise_coll_window_stats {
    uint64_t exchanges;
    uint64_t gather_ns;  /**< until the node's parts are all written */
    uint64_t between_ns; /**< exchange with other nodes */
    uint64_t spread_ns;  /**< until the node has all parts */
    uint64_t sent_bytes; /**< in messages, by this rank */
};

/**
 * `part_bytes[r]` is the length of rank r's part, the same array on all ranks;
 * parts lie one behind the other, in order of ranks, without gaps. The memory
 * is zeroed, and taken at once (each part near its rank, where the machine has
 * NUMA domains): what is missing shows here. `options` may be NULL. Owned by
 * the caller.
 *
 * Collective; the world must outlive the window. -ENOSPC, -ENOMEM: not enough
 * memory. -EPROTO: ranks differ in the lengths or the options.
 */
POISE_API int
poise_coll_window_create(struct poise_world *world, const size_t *part_bytes,
                         const struct poise_coll_window_options *options,
                         struct poise_coll_window **out);
/** Collective. NULL is allowed. */
POISE_API void poise_coll_window_destroy(struct poise_coll_window *window);

/** Where I write my part, for the next exchange. With two copies it moves with
 * each exchange, and holds what it held two exchanges ago. */
POISE_API void *poise_coll_window_part(struct poise_coll_window *window);
/** Where rank r's part begins in the whole. */
POISE_API size_t
poise_coll_window_offset(const struct poise_coll_window *window, int rank);
/** All parts as of the last exchange; read-only. With two copies it moves with
 * each exchange. Zeroes before the first. */
POISE_API const void *
poise_coll_window_whole(const struct poise_coll_window *window);
/** The length of the whole. */
POISE_API size_t
poise_coll_window_bytes(const struct poise_coll_window *window);

/**
 * My part is written; return when all parts are there. Collective, and a
 * barrier for the ranks of a node. An error (a rank died, out of memory) is
 * seen by the rank that it befalls, which abandons the window; others learn of
 * it in this exchange or the next. The window is of no more use then.
 */
POISE_API int poise_coll_window_exchange(struct poise_coll_window *window);

/** I exchange no more: whoever waits for me in an exchange, now or later, gets
 * -ECANCELED. Local; again is allowed. */
POISE_API void poise_coll_window_abandon(struct poise_coll_window *window);

/** Copy `data` (my part's length) into my part, exchange, and give the whole,
 * which is read in place. Collective. */
POISE_API int poise_coll_allgather_shared(struct poise_coll_window *window,
                                          const void *data, const void **whole);

POISE_API struct poise_coll_window_stats
poise_coll_window_stats(const struct poise_coll_window *window);

#ifdef __cplusplus
}
#endif

#endif
