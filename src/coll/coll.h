/*
 * poise/coll.h - collectives that fit an uneven machine, on trees.
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
 *
 * The rank's own value comes first, then those of ranks of its node that join
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
 * its code on through the tree, and ranks that wait for it return that code
 * from this call, others from the next one; the handle is of no use then but to
 * be destroyed. Counts, types, operations and roots must be the same on all
 * ranks: -EPROTO names a rank that differs.
 */
#ifndef POISE_COLL_H
#define POISE_COLL_H

#include <poise/tree.h>

#ifdef __cplusplus
extern "C" {
#endif

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
    /** Of a broadcast whose root has another length than a rank, that rank
     * alone hears (-EMSGSIZE), and the handle stays of use: for programs that
     * go on. Only where all ranks share memory; else -EPROTO as ever. */
    bool lenient;
    /** What records of its calls say they belong to (poise_trace_place), the
     * same on all ranks; 0: poise_world_id. */
    uint64_t group;
    const char *group_name; /**< NULL: none; copied */
};

/** Collective over the world, which must outlive the handle; agrees on one
 * code. `options` may be NULL. */
POISE_API int poise_coll_create(struct poise_world *world,
                                const struct poise_coll_options *options,
                                struct poise_coll **out);
/** Begin to end the handle, or go on with it, without waiting: true once all
 * ranks have begun, after which poise_coll_destroy waits for nobody. So several
 * handles may end in another order on each rank. Nothing else may be done with
 * it. Local. */
POISE_API bool poise_coll_leave(struct poise_coll *coll);
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

/** Items of any length to one rank, from it, or to all: `bytes` of this rank's;
 * blocks[r] is where rank r's lies, at the root only, and at all ranks alike
 * where all have all. `in` and `out` must not overlap. Errors as of alltoallv.
 */
POISE_API int poise_coll_gatherv(struct poise_coll *coll, int root,
                                 const void *in, size_t bytes, void *out,
                                 const struct poise_coll_block *blocks);
POISE_API int poise_coll_scatterv(struct poise_coll *coll, int root,
                                  const void *in,
                                  const struct poise_coll_block *blocks,
                                  void *out, size_t bytes);
POISE_API int poise_coll_allgatherv(struct poise_coll *coll, const void *in,
                                    size_t bytes, void *out,
                                    const struct poise_coll_block *blocks);

/** Rank r gets counts[r] values of the result, those behind what ranks before
 * it get; counts are the same on all ranks. `in` and `out` must not overlap. */
POISE_API int poise_coll_reduce_scatter(struct poise_coll *coll, const void *in,
                                        void *out, const size_t *counts,
                                        enum poise_coll_type type,
                                        enum poise_coll_op op);
/** The result of the values of ranks up to this one, or of those before it
 * (`exclusive`; then rank 0's `out` is left alone), always in order of ranks.
 */
POISE_API int poise_coll_scan(struct poise_coll *coll, const void *in,
                              void *out, size_t count,
                              enum poise_coll_type type, enum poise_coll_op op,
                              bool exclusive);

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
/** Whether calls from now on leave no records, though a trace is in force: for
 * who leaves out some of them. Local. */
POISE_API void poise_coll_mute(struct poise_coll *coll, bool is_mute);
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

#ifdef __cplusplus
}
#endif

#endif
