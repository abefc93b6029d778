/*
 * poise/survey.h - totals of file trees: counts, histograms, largest files, an
 * inventory file of all entries.
 *
 * Linked inodes count once, and all figures are exact also over checkpoint and
 * resume. The formats of inventories are in docs/inventory.md.
 */
#ifndef POISE_SURVEY_H
#define POISE_SURVEY_H

#include <poise/walk.h>

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum poise_walk_type {
    POISE_WALK_FILES,
    POISE_WALK_DIRECTORIES,
    POISE_WALK_LINKS,
    POISE_WALK_PIPES,
    POISE_WALK_SOCKETS,
    POISE_WALK_CHARACTER_DEVICES,
    POISE_WALK_BLOCK_DEVICES,
    POISE_WALK_TYPES
};
/** "files", "directories", ...: the names used in text and JSON. */
POISE_API extern const char *const poise_walk_type_names[];

enum {
    POISE_WALK_SIZE_BINS = 65,  /**< bin 0: empty; b: [2^(b-1), 2^b) bytes */
    POISE_WALK_AGE_BINS = 16,   /**< see poise_walk_age_limits */
    POISE_WALK_DEPTH_BINS = 65, /**< the last one: deeper */
    POISE_WALK_WIDTH_BINS = 34, /**< entries of a directory, as sizes */
    POISE_WALK_TOP_MOST = 1000,
};
/** Upper limit in seconds of each age bin but the last (older). */
POISE_API extern const uint64_t poise_walk_age_limits[POISE_WALK_AGE_BINS - 1];

struct poise_walk_named { /**< a line of a top list */
    char *path;           /**< owned by the summary */
    size_t path_len;
    uint64_t value;
};
struct poise_walk_owner {
    uint32_t uid;
    uint64_t entries, allocated_bytes;
};

enum {
    POISE_WALK_FOLDER_AGES = 4
}; /**< younger than a month, a year, three
       years; older (see
       poise_walk_age_limits) */
/** What one owner has in a folder itself, without the folders in it that have
 * lines of their own. */
struct poise_walk_folder {
    char *path; /**< below its operand, "" for that itself; owned by the
                     summary */
    size_t path_len;
    uint32_t root; /**< index of the operand */
    uint32_t uid;
    uint64_t entries, allocated_bytes;
    uint64_t age_bytes[POISE_WALK_FOLDER_AGES]; /**< by mtime; their sum is
                                                     allocated_bytes */
};

struct poise_walk_summary {
    uint64_t entries;
    uint64_t types[POISE_WALK_TYPES];
    bool with_metadata;                       /**< what follows is filled in */
    uint64_t apparent_bytes, allocated_bytes; /**< a linked inode once */
    uint64_t linked_entries;              /**< entries that are further links */
    uint64_t sizes[POISE_WALK_SIZE_BINS]; /**< regular files */
    uint64_t size_bytes[POISE_WALK_SIZE_BINS];
    uint64_t ages[POISE_WALK_AGE_BINS]; /**< regular files, by mtime */
    uint64_t age_bytes[POISE_WALK_AGE_BINS];
    uint64_t depths[POISE_WALK_DEPTH_BINS];
    uint64_t widths[POISE_WALK_WIDTH_BINS];
    uint64_t deepest, widest;
    /** Files with most data (size, or what is on disk if that is less: holes do
     * not count), the largest first; of equal ones, here and below, the
     * bytewise smallest path first; of several names the smallest. */
    struct poise_walk_named *files;
    size_t file_count;
    /** With most entries. Of equal ones that were read in pieces, which are
     * large, only 64 more than asked for are told apart. */
    struct poise_walk_named *directories;
    size_t directory_count;
    struct poise_walk_owner *owners; /**< by allocated bytes, then uid */
    size_t owner_count;
    /** With options.folders: by root, path and uid. Folders deeper than some
     * level, at most 8, count for those above. Files with several names are in
     * none of them. */
    struct poise_walk_folder *folders;
    size_t folder_count;
    bool without_folders; /**< resumed from a checkpoint that lacks them */
};

enum poise_walk_format { /**< of an inventory */
                         POISE_WALK_SQLITE,
                         POISE_WALK_CSV,
                         POISE_WALK_JSONL,
                         POISE_WALK_BINARY
};

struct poise_walk_survey_options {
    struct poise_walk_options walk; /**< roots, limits, pool; `statx_mask` is
                                         set by the survey */
    bool names_only;    /**< no metadata: counts of entries and types */
    bool folders;       /**< also what folders hold; takes some time */
    unsigned top;       /**< length of the top lists; 0: 10 */
    size_t links_bytes; /**< memory for the set of hard links before it is
                             spilled, per rank; 0: 4 MiB */
    const char *output; /**< inventory file; NULL: none */
    enum poise_walk_format format;
    int64_t now_ns; /**< ages are counted from here; 0: now */
    int (*error)(struct poise_worker *worker, const struct poise_error *err,
                 void *arg);
    void (*progress)(const struct poise_pool_stats *stats, void *arg);
    void *arg; /**< of error and progress */
};

/**
 * Count everything: totals, histograms, top lists, and an inventory file if
 * asked for. Exactly once also over checkpoint and resume. Collective;
 * `summary` is filled in on rank 0 (zeroed elsewhere), `result` as in
 * poise_walk_run. Return codes as there.
 */
POISE_API int poise_walk_survey(struct poise_world *world,
                                const struct poise_walk_survey_options *options,
                                struct poise_walk_summary *summary,
                                struct poise_walk_result *result);
POISE_API void poise_walk_summary_free(struct poise_walk_summary *summary);

/**
 * Fill in the options with which the survey of a checkpoint was started (what
 * is looked at, the inventory's name and format, the time that ages are
 * counted from) and set pool.resume to `checkpoint` (borrowed); everything
 * else in `options` stays. `memory` is overwritten and holds their strings.
 * Local; -EINVAL if it is the checkpoint of something else.
 *
 * When a survey ends well it removes the checkpoint that it wrote and the one
 * it resumed: what they refer to is gone too.
 */
POISE_API int
poise_walk_survey_resume(const char *checkpoint,
                         struct poise_walk_survey_options *options,
                         struct poise_buf *memory);

/**
 * What surveys that were killed left beside options->output and
 * options->walk.pool.checkpoint: append the paths of these files to `out`,
 * each with its NUL. They may also be of a survey that still runs or can be
 * resumed; those of the job that pool.resume goes on with are left out.
 * Returns how many. Local.
 */
POISE_API ssize_t poise_walk_survey_leftovers(
    const struct poise_walk_survey_options *options, struct poise_buf *out);

#ifdef __cplusplus
}
#endif

#endif
