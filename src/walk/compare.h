/*
 * poise/compare.h - what differs between two trees, in parallel.
 *
 * Two walks in one pool: one below A looks each entry up in B and compares
 * both, one below B looks only for names that A lacks. No list of names is
 * kept, so memory does not grow with the trees or with a directory, and a huge
 * directory or a chain of them is shared like any other work.
 */
#ifndef POISE_COMPARE_H
#define POISE_COMPARE_H

#include <poise/find.h>
#include <poise/walk.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How an entry may differ: bits, and their names in this order. */
enum {
    POISE_DIFFERS_MISSING = 1, /**< in A only; what is below it is not listed */
    POISE_DIFFERS_EXTRA = 2,   /**< in B only; the same */
    POISE_DIFFERS_TYPE = 4,
    POISE_DIFFERS_CONTENT = 8,  /**< data; where a symbolic link leads; which
                                     device */
    POISE_DIFFERS_MODE = 16,    /**< permissions */
    POISE_DIFFERS_OWNER = 32,   /**< user or group, as numbers */
    POISE_DIFFERS_TIMES = 64,   /**< of modification, to the nanosecond */
    POISE_DIFFERS_XATTRS = 128, /**< extended attributes, access lists */
    POISE_DIFFERS_LINKS = 256,  /**< one file with another name in one tree, and
                                     not in the other */
    POISE_DIFFERS_KINDS = 9,
    /** What `metadata` may hold. */
    POISE_COMPARE_METADATA = POISE_DIFFERS_MODE | POISE_DIFFERS_OWNER |
                             POISE_DIFFERS_TIMES | POISE_DIFFERS_XATTRS |
                             POISE_DIFFERS_LINKS,
};
/** "missing", "extra", ...; by number of the bit. */
POISE_API extern const char *const poise_differs_names[];

/** An entry as one side has it. */
struct poise_compare_side {
    bool exists;
    uint32_t mode; /**< type and permissions */
    uint32_t uid, gid, nlink;
    uint64_t size_bytes;
    int64_t mtime;
    uint32_t mtime_ns;
};

/** How data of files of the same size are compared. */
enum poise_compare_content {
    POISE_COMPARE_BYTES, /**< byte by byte */
    /** By XXH3-64, each file, or each chunk of a large one, read without a
     * break, for disks that read one file at a time best. The place of the
     * first difference is not known then; files that somebody made to have the
     * same hash pass as the same. */
    POISE_COMPARE_HASH,
    POISE_COMPARE_SIZE, /**< not at all: none is read */
};
/** "bytes", "hash", "size"; NULL-terminated, indexed by the enum. */
POISE_API extern const char *const poise_compare_content_names[];

struct poise_difference {
    unsigned kinds;   /**< POISE_DIFFERS_* */
    const char *path; /**< relative to A and B; "." for them themselves */
    size_t path_len;
    const char *other; /**< LINKS: the other name; else "" */
    uint64_t at;       /**< CONTENT of files: the first byte that differs;
                            UINT64_MAX: not known */
    struct poise_compare_side a, b;
};

struct poise_compare_options {
    /** pool, descriptors, one_file_system, chunk_bytes (files of four times
     * that are compared in chunks, by several workers); the rest is set here */
    struct poise_walk_options walk;
    /** Trees or single entries; symbolic links that lead to directories are
     * followed here, and only here. Where B is a directory `a` may be an
     * inventory of it, of <poise/survey.h>, in any format: then sizes stand for
     * data, numbers of names for links, and attributes are not compared. */
    const char *a, *b;
    unsigned metadata; /**< POISE_DIFFERS_*, of POISE_COMPARE_METADATA */
    enum poise_compare_content content;
    bool first_only; /**< end at the first difference, which is counted but
                          perhaps not handed to `difference` */
    /** Compare only what it matches (what only B has: there). Directories are
     * entered anyway. NULL: all. Borrowed. */
    struct poise_walk_filter *filter;
    /** Each difference, on rank 0, in no particular order; negative stops. */
    int (*difference)(const struct poise_difference *difference, void *arg);
    /** What could not be compared. 0 goes on, negative stops. */
    int (*error)(struct poise_worker *worker, const struct poise_error *err,
                 void *arg);
    void (*progress)(const struct poise_pool_stats *stats, void *arg);
    void *arg;
};

enum { POISE_COMPARE_SIZE_BINS = 48 };

/** Over all ranks. */
struct poise_compare_result {
    uint64_t compared;    /**< entries that both have */
    uint64_t differences; /**< entries that differ */
    uint64_t kinds[POISE_DIFFERS_KINDS];
    uint64_t bytes_read; /**< of both sides */
    /** Files that both have, by their size in A: [0] empty, [i] smaller than
     * 2^i, and not than 2^(i-1); the last: all larger ones, too. */
    uint64_t sizes[POISE_COMPARE_SIZE_BINS];
    uint64_t errors; /**< what could not be compared */
    struct poise_walk_result walk;
};

/**
 * Compare. Collective over `world` (NULL: this process). Returns on all ranks
 * alike: 0 (whatever differs: see the result), -EINTR after an interrupt, or
 * the first error that ended it. A file that changes while it is read is read
 * again, and if it goes on changing counts as an error (-EBUSY). Free what
 * `result` holds with poise_compare_result_free.
 */
POISE_API int poise_compare_run(struct poise_world *world,
                                const struct poise_compare_options *options,
                                struct poise_compare_result *result);
POISE_API void poise_compare_result_free(struct poise_compare_result *result);

/** Differences as an SQLite database, which appears whole. Local. */
struct poise_compare_table;
POISE_API int poise_compare_table_open(const char *path,
                                       struct poise_compare_table **out);
POISE_API int poise_compare_table_add(struct poise_compare_table *table,
                                      const struct poise_difference *d);
/** Put it in its place; frees it in any case. */
POISE_API int poise_compare_table_commit(struct poise_compare_table *table);
/** Give up; NULL is allowed. */
POISE_API void poise_compare_table_abort(struct poise_compare_table *table);

#ifdef __cplusplus
}
#endif

#endif
