/*
 * poise/extmem.h - data larger than memory: sorting files of numbers, records
 * and lines in two passes over the data, at the speed of the disks; ranking
 * the nodes of linked lists; checking and generating such files.
 *
 * All functions use threads of their own. They are local, but for those of
 * which the options name a world of several ranks: these are collective, with
 * the same arguments on all ranks, called by the world's thread; the files are
 * seen by all of them, errors are the same on all.
 */
#ifndef POISE_EXTMEM_H
#define POISE_EXTMEM_H

#include <poise/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a file consists of. Numbers are in the machine's byte order. */
enum poise_sort_kind {
    POISE_SORT_U32,
    POISE_SORT_I32,
    POISE_SORT_U64,
    POISE_SORT_I64,
    /** Ordered as totalOrder of IEEE 754 does: NaNs with the sign bit first,
     * then -inf ... -0 < +0 ... +inf, then the other NaNs; NaNs among each
     * other by their bits. Equal are only equal bits. */
    POISE_SORT_F32,
    POISE_SORT_F64,
    POISE_SORT_RECORD, /**< of a fixed number of bytes */
    /** Ended by newlines, ordered by bytes (as `LC_ALL=C sort` does, which
     * also ends the last line if it was not). */
    POISE_SORT_LINES,
};

struct poise_sort_type {
    enum poise_sort_kind kind;
    /* Of records only: their length, and where the key lies in them. */
    uint32_t record_bytes, key_offset, key_bytes;
    /** POISE_SORT_RECORD: the key's bytes are compared, first byte first;
     * else the key is a number of this kind. */
    enum poise_sort_kind key_kind;
};

/**
 * "u32", "i32", "u64", "i64", "f32", "f64", "lines", "record:LEN" (the whole
 * record is its key) or "record:LEN,OFFSET,KEYLEN". `key` (may be NULL) is
 * for records, instead of the latter: "OFFSET,KEYLEN" or "OFFSET:KIND" with
 * KIND one of the numbers. -EINVAL with the reason.
 */
POISE_API int poise_sort_type_parse(const char *type, const char *key,
                                    struct poise_sort_type *out);
/** "u32", ..., "record", "lines". */
POISE_API const char *poise_sort_kind_name(enum poise_sort_kind kind);

/** Zero is the default of everything but `type`. */
struct poise_sort_options {
    struct poise_sort_type type;
    /** All the memory that the run may take, of a node: its ranks share it; 0:
     * nine tenths of poise_memory_available(), but 6 MiB or half of it are
     * left. */
    uint64_t memory_bytes;
    /** Who takes part; NULL: this process. Borrowed. */
    struct poise_world *world;
    /** Folders for scratch files, striped over all of them, best one on each
     * disk; none: the folder of the output. Borrowed. */
    const char *const *scratch;
    size_t scratch_count;
    unsigned threads; /**< of each process; 0: one for each processor */
    bool unique;      /**< of items with equal keys, the first one only */
    bool in_place;    /**< the output may replace the input */
    bool sync;        /**< the output is on the disk when the run is over */
    bool checksum;    /**< compute result->checksum */
    struct poise_disk_options disk;
};

/** What a run did, all processes together. */
struct poise_sort_result {
    uint64_t items_in, items_out, bytes_in, bytes_out;
    /** All transfers: of input, scratch and output. */
    uint64_t read_bytes, written_bytes;
    uint64_t scratch_bytes; /**< written to scratch files */
    uint64_t memory_bytes;  /**< the budget */
    uint64_t block_bytes;   /**< unit of scratch files */
    uint64_t buckets;       /**< parts that were sorted by themselves */
    uint64_t largest_bytes; /**< of them */
    uint64_t mean_bytes;
    uint64_t splits;  /**< buckets too large for memory, parted once more */
    unsigned threads; /**< of each process */
    unsigned processes;
    /** Order-independent checksum of what was read: see
     * struct poise_sort_report. */
    uint64_t checksum;
    uint64_t sample_ns, distribute_ns, sort_ns;
    const char *engine; /**< of the disks: "io_uring" or "threads" */
    bool direct_in, direct_out, direct_scratch;
};

/**
 * Sort file `in` into file `out`, the same bytes however many processes and
 * threads do it. Items with equal keys keep their order. The
 * output appears under its name whole or not at all; the input is never
 * written to. Data are read twice and written twice at most, unless a bucket
 * is too large for the memory and has to be split again (result->splits).
 *
 * Several processes read a part of the input each, and send what they read to
 * the process that sorts and writes that range of keys: see docs/sort.md.
 * Collective over options->world. A rank that dies ends the job, by its
 * launcher, without an output.
 *
 * -EINVAL: a size that is no multiple of the item's, a key past the record's
 * end, `in` and `out` being one file without options->in_place; -ENOMEM: too
 * little memory (the message says how much would do); -ENOSPC: too little
 * disk, before anything is written or when it happens.
 */
POISE_API int poise_sort_run(const char *in, const char *out,
                             const struct poise_sort_options *options,
                             struct poise_sort_result *result);

/** What a file holds. */
struct poise_sort_report {
    uint64_t items, bytes;
    uint64_t checksum;   /**< sum of the hashes of all items: equal for files
                              of the same items in any order */
    uint64_t duplicates; /**< items whose key equals their predecessor's */
    bool sorted;
    uint64_t first_unsorted; /**< index of an item that comes before its
                                  predecessor, if not sorted: the first */
};

/** Read a file once and see whether it is sorted. Errors as above; that it is
 * not sorted is none. */
POISE_API int poise_sort_check(const char *path,
                               const struct poise_sort_options *options,
                               struct poise_sort_report *report);

/** Patterns of generated data. */
enum poise_sort_pattern {
    POISE_SORT_RANDOM,
    POISE_SORT_SORTED,
    POISE_SORT_REVERSE,
    POISE_SORT_EQUAL,
    POISE_SORT_FEW,  /**< 16 different keys */
    POISE_SORT_SKEW, /**< half of the keys are small, half of those smaller.. */
};
/** Their names, NULL-terminated. */
POISE_API extern const char *const poise_sort_pattern_names[];

/**
 * Write `count` items, the same for the same seed. Records are like gensort's:
 * a key of random bytes, then the item's number and filling; lines have 20 to
 * 78 characters (keys of the pattern first).
 */
POISE_API int poise_sort_generate(const char *path,
                                  const struct poise_sort_options *options,
                                  enum poise_sort_pattern pattern,
                                  uint64_t count, uint64_t seed);

/* ---- lists ------------------------------------------------------------------
 *
 * A file of N linked nodes holds N numbers of 64 bits: the successor of each
 * node, as its index in the file. A node that is its own successor, or has
 * successor 2^64-1, is the last one of its list. There may be any number of
 * lists. The rank of a node is its distance to the last one of its list.
 */

/** Zero is the default of everything. */
struct poise_listrank_options {
    /** A file of N numbers of 64 bits: how far each node is from its
     * successor; NULL: 1. Signed or not: sums are taken modulo 2^64. That of a
     * last node counts for nothing. Borrowed. */
    const char *weights;
    uint64_t memory_bytes; /**< as of a sort, and so on */
    struct poise_world *world;
    const char *const *scratch;
    size_t scratch_count;
    unsigned threads;
    bool sync;
    struct poise_disk_options disk;
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
 * With memory for 17 bytes a node (and a little more) all happens in memory:
 * threads walk the list from many random nodes at a time. With less, nodes are
 * bridged out piece by piece of the file, and ranked in the opposite order
 * (Source: pems, algorithm 2.1): the traffic with the disks is about 150 bytes
 * a node, however little the memory is.
 *
 * Several processes of one machine lend the first one their threads and their
 * processors. Those of several machines hold a part of the nodes each, and send
 * each other the walks that go on there, if their memory is enough together: 17
 * bytes a node (and a little more, about 20 MiB each); a thread each. Else, or
 * if there is a list for every 256 nodes or more, the first process does it
 * alone, with the threads of those of its machine. Collective over
 * options->world.
 *
 * -EINVAL: a size that is no multiple of 8, a successor past the end, a node
 * with two predecessors, a cycle (named by index: the first there is, in this
 * order); -ENOMEM, -ENOSPC as of a sort; -EFBIG: more than 2^39-4 nodes.
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
 * page cache; only options->weights and ->disk are used.
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
