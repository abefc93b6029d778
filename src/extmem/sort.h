/*
 * poise/sort.h - sorting files of numbers, records and lines that are larger
 * than memory, in two passes over the data, at the speed of the disks; checking
 * and generating such files.
 *
 * What is read may be a pipe, a device or a socket, too: it is copied to its
 * end into a scratch file, which takes as much space again. /dev/stdin,
 * /dev/fd/N and /proc/self/fd/N are descriptors of this process, and read from
 * where they stand. Several ranks cannot share such an input: -EINVAL.
 *
 * All functions use threads of their own. They are local, but for those of
 * which the options name a world of several ranks: these are collective, with
 * the same arguments on all ranks, called by the world's thread; the files are
 * seen by all of them, errors are the same on all.
 */
#ifndef POISE_SORT_H
#define POISE_SORT_H

#include <poise/comm.h>
#include <poise/disk_options.h>
#include <poise/sort_keys.h>

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
     * also ends the last line if it was not), or by keys. */
    POISE_SORT_LINES,
};

struct poise_sort_type {
    enum poise_sort_kind kind;
    /* Of records only: their length, and where the key lies in them. */
    uint32_t record_bytes, key_offset, key_bytes;
    /** POISE_SORT_RECORD: the key's bytes are compared, first byte first;
     * else the key is a number of this kind. */
    enum poise_sort_kind key_kind;
    /** What lines are ordered by; NULL: their bytes. Of records: instead of the
     * above. Borrowed. */
    const struct poise_sort_keys *keys;
    bool zero_ended; /**< lines: by NULs, not by newlines */
    bool newlines;   /**< zero_ended ones: in the output by newlines */
    bool reverse;    /**< numbers: the greatest first */
};

/**
 * "u32", "i32", "u64", "i64", "f32", "f64", "lines", "record:LEN" (the whole
 * record is its key) or "record:LEN,OFFSET,KEYLEN". `key` (may be NULL) is
 * for records, instead of the latter: "OFFSET,KEYLEN" or "OFFSET:KIND" with
 * KIND one of the numbers. -EINVAL with the reason.
 */
POISE_API int poise_sort_type_parse(const char *type, const char *key,
                                    struct poise_sort_type *out);
/** Keys of records, the most significant first: "OFFSET,KEYLEN" or
 * "OFFSET:KIND", each with "r" behind it for the greatest first. Sets
 * type->keys or, where one key needs nothing more, those of its members; *out
 * is NULL then, else to be freed by poise_sort_keys_free when the type is used
 * no more. -EINVAL with the reason. */
POISE_API int poise_sort_record_keys(struct poise_sort_type *type,
                                     const char *const *keys, size_t count,
                                     struct poise_sort_keys **out);
/** Fields of records to be added up, "OFFSET:KIND" each: what options->sums
 * takes. As above. */
POISE_API int poise_sort_record_sums(const struct poise_sort_type *type,
                                     const char *const *fields, size_t count,
                                     struct poise_sort_keys **out);
/** "u32", ..., "record", "lines". */
POISE_API const char *poise_sort_kind_name(enum poise_sort_kind kind);

/** How much of the data passed so far, and will at the end: each byte once when
 * it is read and once when it is sorted; 0: that is not known. Of this process.
 * Written and read with __atomic: any thread may look. */
struct poise_sort_progress {
    uint64_t passed_bytes, total_bytes;
};

/** Zero is the default of everything but `type`. */
struct poise_sort_options {
    struct poise_sort_type type;
    /** Inputs that are read behind `in`, as if they were one file with it (a
     * line ends with its file). Borrowed. */
    const char *const *more;
    size_t more_count;
    /** The memory that the run may take on a machine, whose ranks share it; 0:
     * nine tenths of poise_memory_available(), but 6 MiB or half of it are
     * left. */
    uint64_t memory_bytes;
    /** The processes that take part; NULL: this one. Borrowed. */
    struct poise_world *world;
    /** Folders for scratch files, striped over all of them, best one on each
     * disk. Borrowed. None: the output's own space, which then takes about a
     * thirtieth more until the run is over; a file in its folder where that
     * cannot be: of several processes, with sums, with pack_program or
     * POISE_SORT_PACK_ALWAYS, or if only the first items are wanted. */
    const char *const *scratch;
    size_t scratch_count;
    unsigned threads; /**< of each process; 0: one for each processor */
    bool unique;      /**< of items with equal keys, the first one only */
    /* With `unique`, of lines and records in one process: else -EINVAL. */
    bool count; /**< lines: their number before it, as uniq(1) -c writes it */
    /** Fields that become the sums of theirs, 8 at most: of lines decimal
     * numbers, exactly; of records numbers. -ERANGE: a sum does not fit.
     * Borrowed; NULL: none. */
    const struct poise_sort_keys *sums;
    uint64_t head; /**< write so many items only, the first; 0: all. What is
                        behind them is not stored. One process: else -EINVAL */
    /** Written before all items. One process: else -EINVAL. Borrowed. */
    const void *header;
    size_t header_bytes;
    /** Sees, and may change, but for its length, all that is read, file after
     * file, which first is copied into a scratch file. Called with `len` 0 at
     * the end of each. One process. */
    int (*filter)(void *arg, char *data, size_t len);
    void *filter_arg;
    /** Whether scratch files are compressed, by Zstandard, where one process
     * sorts: auto where that is quicker, by what the disk and some of the data
     * take at the begin. */
    enum poise_sort_pack {
        POISE_SORT_PACK_AUTO,
        POISE_SORT_PACK_ALWAYS,
        POISE_SORT_PACK_NEVER,
    } pack;
    /** A program that compresses instead, always: what it reads from standard
     * input, block by block, to standard output, and back with -d. Found by
     * PATH. Borrowed; NULL: none. */
    const char *pack_program;
    bool in_place; /**< the output may replace the input */
    bool sync;     /**< the output is on the disk when the run is over */
    bool checksum; /**< compute result->checksum */
    struct poise_disk_options disk;
    struct poise_sort_progress *progress; /**< NULL: nobody looks. Borrowed */
};

/** What a run did, all processes together. */
struct poise_sort_result {
    uint64_t items_in, items_out, bytes_in, bytes_out;
    /** All transfers: of input, scratch and output. */
    uint64_t read_bytes, written_bytes;
    /** What the plan said that they would be, if keys are spread and no line is
     * left out: see struct poise_sort_forecast. */
    uint64_t planned_read_bytes, planned_written_bytes;
    uint64_t scratch_bytes; /**< written as scratch */
    bool in_output;         /**< that lay in the space of the output */
    uint64_t moved_bytes;   /**< of that, moved there to make way */
    /** What of that was compressed, and what it had been. */
    uint64_t packed_bytes, unpacked_bytes;
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
 * written to. Data are read twice and written twice at most, unless memory is
 * so little that buckets are parted once more (poise_sort_plan says how often),
 * or one turns out too large for the memory (result->splits).
 *
 * Several processes read a part of the input each, and send what they read to
 * the process that sorts and writes that range of keys: see docs/sort.md.
 * Collective over options->world. A rank that dies ends the job, by its
 * launcher, without an output.
 *
 * -EBADMSG: a size that is no multiple of the item's; -EINVAL: a key past the
 * record's end, `in` and `out` being one file without options->in_place;
 * -ENOMEM: too little memory (the message says how much would do); -ENOSPC: too
 * little disk, before anything is written or when it happens.
 */
POISE_API int poise_sort_run(const char *in, const char *out,
                             const struct poise_sort_options *options,
                             struct poise_sort_result *result);

/** What a run would do. Keys that are frequent, and items that are left out,
 * make it less. */
struct poise_sort_forecast {
    uint64_t bytes_in;
    /** All transfers of all processes: of input, scratch and output. */
    uint64_t read_bytes, written_bytes;
    uint64_t scratch_bytes; /**< on scratch files at a time */
    uint64_t memory_bytes, block_bytes;
    uint32_t buckets;
    unsigned rounds; /**< how often all is parted once more */
    unsigned threads, processes;
    /** What the disk takes for the transfers by what some of them took, one
     * after the other; 0: there was nothing to measure with. Computing comes to
     * it where it takes longer. */
    double disk_seconds;
};

/**
 * What poise_sort_run would do with the same arguments: the plan, and how long
 * the disk would take, for which up to 16 MiB of the input are read and as much
 * written into a scratch file without a name. The output is left alone. Local:
 * of a world only the number of processes counts. Errors as of poise_sort_run;
 * -ESPIPE: an input that can be read once only.
 */
POISE_API int poise_sort_plan(const char *in, const char *out,
                              const struct poise_sort_options *options,
                              struct poise_sort_forecast *forecast);

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

/**
 * Merge sorted files, `in` and options->more, into one: in one pass, in little
 * memory, through the page cache. Of equal items those of the first file come
 * first (with options->unique: the first of them only). At most
 * `batch` files are merged at a time (0: 16): more take scratch files, and more
 * passes. Files that are not sorted give a file that is not sorted. Local;
 * -EBADMSG: a file ends within an item; -EISDIR and others of open(2) and
 * read(2).
 */
POISE_API int poise_sort_merge(const char *in, const char *out,
                               const struct poise_sort_options *options,
                               unsigned batch);

/** The first line of a file that comes before its predecessor (with
 * options->unique: or equals it): *number, from 1 on, or 0 if there is none;
 * the line is appended to `line`. Reads as far as that, once. Local. */
POISE_API int poise_sort_find_disorder(const char *path,
                                       const struct poise_sort_options *options,
                                       uint64_t *number,
                                       struct poise_buf *line);

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

#ifdef __cplusplus
}
#endif

#endif
