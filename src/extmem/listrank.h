/*
 * poise/listrank.h - ranking the nodes of linked lists in files, also where
 * they are larger than memory; checking and generating such files.
 *
 * A file of N linked nodes holds N numbers of 64 bits: the successor of each
 * node, as its index in the file. A node that is its own successor, or has
 * successor 2^64-1, is the last one of its list. There may be any number of
 * lists. The rank of a node is its distance to the last one of its list.
 *
 * An input that is no regular file is read as poise/sort.h says; for several
 * processes of one machine the first one does so.
 *
 * All functions use threads of their own. They are local, but for
 * poise_listrank_run with a world of several ranks, which is collective: with
 * the same arguments on all ranks, called by the world's thread; all ranks see
 * the files, errors are the same on all.
 */
#ifndef POISE_LISTRANK_H
#define POISE_LISTRANK_H

#include <poise/comm.h>
#include <poise/disk_options.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How far a run is, of what its nodes take in the file: each byte once when it
 * is read, once when its node is walked over, and once when its rank is
 * written; total_bytes 0: that is not known, or processes of several machines
 * do it together. Of the process that does it. Written and read with __atomic:
 * any thread may look. */
struct poise_listrank_progress {
    uint64_t passed_bytes, total_bytes;
};

/** Zero is the default of everything. */
struct poise_listrank_options {
    /** A file of N numbers of 64 bits: how far each node is from its
     * successor; NULL: 1. Signed or not: sums are taken modulo 2^64. That of a
     * last node counts for nothing. Borrowed. */
    const char *weights;
    uint64_t memory_bytes; /**< this and the next: as in poise/sort.h */
    struct poise_world *world;
    const char *const *scratch;
    size_t scratch_count;
    unsigned threads;
    bool sync;
    struct poise_disk_options disk;
    struct poise_listrank_progress
        *progress; /**< NULL: nobody looks. Borrowed */
};

/** What a run did. */
struct poise_listrank_result {
    uint64_t nodes, lists;
    uint64_t greatest; /**< rank, as an unsigned number */
    bool in_memory;
    uint64_t buckets; /**< pieces of the file that were handled one by one */
    uint64_t memory_bytes;
    uint64_t read_bytes, written_bytes, scratch_bytes;
    unsigned threads;   /**< of each process */
    unsigned processes; /**< that took part in the work */
    /** In memory: reading, walking, writing. Else: reading, bridging nodes
     * out, ranking. */
    uint64_t read_ns, walk_ns, write_ns;
    const char *engine; /**< "" if another process did it alone */
};

/**
 * Write the ranks of the nodes of `in`, numbers of 64 bits in the order of the
 * nodes, to `out`, which appears whole or not at all.
 *
 * With memory for 17 bytes for each node (and a little more) all happens in
 * memory: threads walk the list from many random nodes at a time. With less,
 * nodes are bridged out piece by piece of the file, and ranked in the opposite
 * order (Source: pems, algorithm 2.1): the traffic with the disks is about 150
 * bytes for each node, however little the memory is.
 *
 * Several processes of one machine lend the first one their threads and their
 * processors. Those of several machines hold a part of the nodes each, and send
 * each other the walks that go on there, if their memory is enough together: 17
 * bytes for each node (and a little more, about 20 MiB each); a thread each.
 * Else, or if there is a list for every 256 nodes or more, the first process
 * does it alone, with the threads of those of its machine. Collective over
 * options->world.
 *
 * -EBADMSG: a size that is no multiple of 8, a successor past the end, a node
 * with two predecessors, a cycle (named by index: the first there is, in this
 * order), weights of another number; -EINVAL: `out` is an input; -ENOMEM,
 * -ENOSPC as of a sort; -EFBIG: more than 2^39-4 nodes.
 */
POISE_API int poise_listrank_run(const char *in, const char *out,
                                 const struct poise_listrank_options *options,
                                 struct poise_listrank_result *result);

/** What ranks of a list look like. */
struct poise_listrank_report {
    uint64_t nodes, lists;
    uint64_t wrong;       /**< nodes whose rank is not what it has to be */
    uint64_t first_wrong; /**< the first of them, if there is one */
};

/**
 * See whether the ranks in `out` are those of `in`: that of a last node has to
 * be 0, every other one its successor's and the weight between them. If all
 * weights are positive that proves them. Reads `out` at random, through the
 * page cache; of the options only weights, scratch and disk are used.
 */
POISE_API int poise_listrank_check(const char *in, const char *out,
                                   const struct poise_listrank_options *options,
                                   struct poise_listrank_report *report);

/** Orders in which a list goes through its file. */
enum poise_listrank_pattern {
    POISE_LISTRANK_RANDOM,
    POISE_LISTRANK_SEQUENTIAL,
    POISE_LISTRANK_REVERSE,
    POISE_LISTRANK_BLOCKS, /**< 4096 nodes in order, then somewhere else */
};
/** Their names, NULL-terminated. */
POISE_API extern const char *const poise_listrank_pattern_names[];

/** The generator's own idea of a list. */
struct poise_listrank_shape {
    enum poise_listrank_pattern pattern;
    uint64_t nodes;
    uint64_t lists; /**< of about the same length; 0: one */
    uint64_t seed;
};

/** Write a file of lists, the same for the same shape, in any size with little
 * memory. */
POISE_API int
poise_listrank_generate(const char *path,
                        const struct poise_listrank_shape *shape,
                        const struct poise_listrank_options *options);
/** What the generator knows of node `node`: its successor (itself if it is the
 * last one) and its rank. */
POISE_API void poise_listrank_node(const struct poise_listrank_shape *shape,
                                   uint64_t node, uint64_t *successor,
                                   uint64_t *rank);

#ifdef __cplusplus
}
#endif

#endif
