/*
 * poise/copy.h - copy trees of files, by threads and by ranks.
 *
 * One walk over the sources makes at the target what it meets: a directory
 * before what is in it, its attributes after; a file whole, then its name;
 * large files in chunks, by whoever has nothing else to do. What a killed copy
 * leaves is whole, but for temporary names, which a copy with `resume` removes.
 *
 * A file with several names is copied once, whichever ranks meet its names:
 * who is first claims it in a folder at the target, where the others find the
 * copy to link to; who comes while it is being made notes the name, for after
 * the walk. So memory does not grow with the tree.
 *
 * Source: tree-walk I (copying between file systems).
 */
#ifndef POISE_COPY_H
#define POISE_COPY_H

#include <poise/entry.h>
#include <poise/find.h>
#include <poise/walk.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a copy does, or would do, to a path: see poise_copy_options.said. */
enum poise_copy_action {
    POISE_COPY_MADE,    /**< copied: it was not there */
    POISE_COPY_CHANGED, /**< copied over what was there */
    POISE_COPY_LINKED,  /**< made a further name of a file that was copied */
    POISE_COPY_DELETED,
};

/** How far a copy is. */
struct poise_copy_bytes {
    uint64_t found, copied;
};

struct poise_copy_options {
    /** Roots are the sources; pool, one_file_system and descriptors as there.
     * The rest of it is the copy's own. */
    struct poise_walk_options walk;
    const char *target;
    bool target_is_name; /**< -T: never put sources into it */
    /** What is not kept, of POISE_WALK_KEEP_*; 0: all is. */
    unsigned drop;
    bool update; /**< leave files alone that are newer or as new there */
    bool resume; /**< leave alone what is there with the same type, size and
                      time of modification, but for its attributes; remove
                      what a killed copy left */
    bool remove; /**< mirror: what is at the target and not among the sources
                      goes; what is of another kind is replaced */
    bool atomic; /**< under a temporary name until all is there; the target
                      must not exist */
    bool dry;    /**< change nothing, but say it */
    bool verify; /**< read back what was written, and compare hashes */
    enum poise_sync sync;
    uint64_t bytes_per_s, calls_per_s; /**< of all ranks together; 0: no limit.
                                            Calls: of metadata, about */
    /** Only what it is true of, and the directories that takes. NULL: all.
     * Borrowed. */
    struct poise_walk_filter *filter;
    uint64_t chunk_bytes; /**< of large files; 0: 16 MiB */
    /** As in struct poise_walk_hooks. */
    int (*error)(struct poise_worker *worker, const struct poise_error *err,
                 void *arg);
    void (*progress)(const struct poise_pool_stats *stats, void *arg);
    /** Set before each call of `progress`: bytes of data of the files that this
     * process found, and of these that are at the target. NULL: not wanted. */
    struct poise_copy_bytes *bytes;
    /** On rank 0, for each path of a target: what happened to it, or would. One
     * call at a time. NULL: nobody asks. Negative ends the copy. */
    int (*said)(enum poise_copy_action action, const char *path, size_t len,
                void *arg);
    void *arg;
};

enum { POISE_COPY_SIZE_BINS = 48 };
/** Of all ranks. */
struct poise_copy_counts {
    uint64_t files, directories, symlinks, specials; /**< made or replaced */
    uint64_t hard_links; /**< further names of files that were copied */
    uint64_t skipped;    /**< were there already (resume, update) */
    uint64_t deleted;    /**< entries of directories, each with all below it */
    uint64_t bytes;      /**< of data that were copied, */
    uint64_t cloned_bytes;  /**< of these as clones, which shares them */
    uint64_t resumed_bytes; /**< of large files, which an interrupted copy had
                                 left (resume) */
    uint64_t retries;       /**< a file changed while it was read: read again */
    uint64_t failed;        /**< could not be copied; each was an error */
    uint64_t refused_owner; /**< copied, but not with their owner or group */
    uint64_t refused_xattrs; /**< copied, but not with all of their extended
                                  attributes */
    /** Files copied, by size: [0] empty, [i] smaller than 2^i, and not than
     * 2^(i-1). */
    uint64_t sizes[POISE_COPY_SIZE_BINS];
    uint64_t unfinished; /**< directories that were begun and not finished:
                            after an interruption */
};

enum {
    POISE_COPY_SAMPLES = 512,
    POISE_COPY_LINES = 100, /**< the most of a list */
};
/** How far a rank was at a moment of its run. */
struct poise_copy_sample {
    uint64_t at_ns, files, bytes;
};

struct poise_copy_result {
    struct poise_walk_result walk; /**< errors of reading and of copying */
    struct poise_copy_counts counts;
    char *
        refused; /**< a target of refused_owner or refused_xattrs; NULL: none */
    char *left;  /**< atomic: the temporary name that what is incomplete still
                      has; NULL: none */
    /** Rank 0: [walk.size] times sample_counts[rank], else NULL. */
    struct poise_copy_sample *samples; /**< [walk.size][POISE_COPY_SAMPLES] */
    size_t *sample_counts;
    /** Rank 0: the first errors of each rank, as text, and of which rank; at
     * most POISE_COPY_LINES of each rank. walk.errors counts all. */
    char **messages;
    int *message_ranks;
    size_t message_count;
    /** Rank 0, where the copy ended before its end (-EINTR, -ENOSPC, -EDQUOT),
     * without a filter: targets that were not made, or not to the end, at most
     * POISE_COPY_LINES; of a directory that was not begun only its own name.
     * `undone_more`: there may be more. */
    char **undone;
    size_t undone_count;
    bool undone_more;
};

/**
 * Copy. Collective over `world`; NULL: this process alone. Returns on all ranks
 * alike: 0 (see result->walk.errors for what could not be copied), -EINTR after
 * an interrupt, the error that ended it (-ENOSPC and -EDQUOT do), or what is
 * refused before anything is changed: -EINVAL (a target inside its source, two
 * sources of one name), -ENOTDIR, -EEXIST (atomic). `result` is filled in any
 * case; free what it holds with poise_copy_result_free.
 */
POISE_API int poise_copy_run(struct poise_world *world,
                             const struct poise_copy_options *options,
                             struct poise_copy_result *result);
POISE_API void poise_copy_result_free(struct poise_copy_result *result);

#ifdef __cplusplus
}
#endif

#endif
