/*
 * poise/walk.h - walk huge file trees in parallel, and what is done to them.
 *
 * The engine (poise_walk_run) is an ftw-like call over the task pool: a
 * callback per entry, threads in one process or ranks of a world. On it stand
 * the summary, the inventory, du and find.
 *
 * A task of the walk is (directory, from, to): a range of a directory's own
 * order, by its d_off cookies. A running task publishes its progress as a
 * shorter range, an idle worker is given the upper part of one, and a
 * checkpoint stores them: reading one huge directory is shared like any other
 * work. Paths are kept as chains of names from directory to parent, so their
 * length has no limit; descriptors are a cache and may be as few as 16.
 *
 * Symbolic links are reported, never followed. Source: tree-walk III.A, IV.
 */
#ifndef POISE_WALK_H
#define POISE_WALK_H

#include <poise/comm.h>
#include <poise/core.h>
#include <poise/task.h>

#include <sys/stat.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the engine --------------------------------------------------------- */

/** A directory of the tree, within this process. */
struct poise_walk_dir;

/** One entry, as callbacks see it; valid during the call. The functions below
 * want this very struct, not a copy of it. */
struct poise_walk_entry {
    const char *name; /**< NUL-terminated; the operand as given, if a root */
    size_t name_len;
    struct poise_walk_dir *dir; /**< the directory that holds it; NULL: root */
    unsigned root;      /**< index of the operand below which it was found */
    uint32_t depth;     /**< 0: a root */
    unsigned char type; /**< DT_REG, DT_DIR, ...; DT_UNKNOWN never */
    uint64_t ino;       /**< as the directory tells it; of roots from stat */
    struct poise_worker *worker;
};

enum {
    POISE_WALK_ON = 0,   /**< go on */
    POISE_WALK_SKIP = 1, /**< do not enter this directory */
    POISE_WALK_STOP = 2, /**< this and greater values: stop everything; the
                              value is what poise_walk_run returns, on all
                              ranks */
};

/** Append the entry's path, operand first, as find prints it. */
POISE_API int poise_walk_path(const struct poise_walk_entry *entry,
                              struct poise_buf *out);
/** Append the path of a directory; an operand is written as it was given. */
POISE_API int poise_walk_dir_path(const struct poise_walk_dir *dir,
                                  struct poise_buf *out);
/** A descriptor for *at() calls together with entry->name; AT_FDCWD for
 * roots. Borrowed, valid during the callback. Negative errno if the directory
 * cannot be reopened: that was already counted and told to the error hook, so
 * that visit should just go on. */
POISE_API int poise_walk_dirfd(const struct poise_walk_entry *entry);
/** Metadata, with at least the fields of `mask` (STATX_*): what the walk has
 * already, or one statx (not following links). Borrowed, valid during the
 * callback. A failure was already counted and told to the error hook, so that
 * visit should just go on. */
POISE_API int poise_walk_stat(const struct poise_walk_entry *entry,
                              unsigned mask, const struct statx **out);
/** One pointer per directory for the user, within this process; NULL at
 * first, and again in another process. Any worker: use __atomic access. */
POISE_API void **poise_walk_dir_slot(struct poise_walk_dir *dir);
/** The parent of a directory, or NULL; its own name; its depth. */
POISE_API struct poise_walk_dir *
poise_walk_dir_parent(const struct poise_walk_dir *dir);
POISE_API const char *poise_walk_dir_name(const struct poise_walk_dir *dir);
POISE_API uint32_t poise_walk_dir_depth(const struct poise_walk_dir *dir);
/** 64 bits that the user gave to this directory when it was visited
 * (poise_walk_dir_tag_set on the entry), carried along to other ranks and
 * through checkpoints; 0 if none. */
POISE_API uint64_t poise_walk_dir_tag(const struct poise_walk_dir *dir);
/** During visit of a directory: the tag of the directory it will become. */
POISE_API void poise_walk_tag_set(struct poise_walk_entry *entry, uint64_t tag);

/** The user's callbacks; unused ones are NULL. Any worker thread. */
struct poise_walk_hooks {
    /** Each entry once, directories before what is in them. Returns one of
     * POISE_WALK_*, or a negative errno to stop with an error. */
    int (*visit)(struct poise_walk_entry *entry, void *arg);
    /** Option post: each directory that visit answered with POISE_WALK_ON,
     * after everything below it; at once if it is not entered (depth limit,
     * other file system). */
    int (*leave)(struct poise_walk_entry *entry, void *arg);
    /** A piece of a directory was read: `entries` of its entries since the
     * last call for it; `whole`: these are all it has (said once, and not at
     * all of a directory that cannot be opened). Before the commit that covers
     * it. 0, or a negative errno to stop. */
    int (*piece)(struct poise_worker *worker, const struct poise_walk_dir *dir,
                 uint64_t entries, bool whole, void *arg);
    /** Something could not be read: `err` names the path. 0 goes on, negative
     * stops. NULL: go on, counted in the result. */
    int (*error)(struct poise_worker *worker, const struct poise_error *err,
                 void *arg);
    /** As in struct poise_pool_hooks. */
    void (*commit)(struct poise_worker *worker, void *arg);
    int (*save)(struct poise_buf *out, void *arg);
    int (*settle)(void *arg);
    int (*load)(const void *saved, size_t len, int from_rank, int from_size,
                void *arg);
    int (*deliver)(int source, const void *data, size_t len, void *arg);
    /** As there; stats->sum.done counts entries. */
    void (*progress)(const struct poise_pool_stats *stats, void *arg);
    void *arg;
};

struct poise_walk_options {
    const char *const *roots; /**< operands; the same on all ranks */
    size_t root_count;
    unsigned statx_mask;  /**< fields wanted of every entry (STATX_*), fetched
                               ahead of visit; 0: names and types only */
    bool one_file_system; /**< do not enter other file systems (each root's
                               own): their mount points are visited */
    bool post;            /**< call `leave`; not with a checkpoint: -EINVAL */
    uint32_t max_depth;   /**< entries deeper are not read; 0: no limit,
                               set `max_depth_is_zero` for roots only */
    bool max_depth_is_zero;
    bool single_entries;  /**< one task per entry, not per directory: only
                               to compare with the paper's central scheme */
    unsigned descriptors; /**< how many to keep open; 0: from RLIMIT */
    bool resume_here;     /**< pool.job holds relative names: resume only in
                               the working directory of now; so it is anyway
                               if a root is relative */
    struct poise_pool_options pool; /**< `job` is filled in by the walk; the
                                         caller's goes into it */
};

/** Where the time went, of one rank; nanoseconds. */
struct poise_walk_profile {
    uint64_t readdir_ns, stat_ns, visit_ns, comm_ns, idle_ns, other_ns;
};

struct poise_walk_result {
    uint64_t errors;  /**< over all ranks: what could not be read */
    uint64_t entries; /**< visited, over all ranks */
    uint64_t wall_ns; /**< of the slowest rank, without starting MPI */
    int size;
    struct poise_pool_stats *stats;      /**< rank 0: [size], else NULL */
    struct poise_walk_profile *profiles; /**< rank 0: [size], else NULL */
};

/**
 * Walk. Collective over `world`; NULL: this process alone, with threads, no
 * MPI. Returns on all ranks alike: 0 (also if some of it could not be read:
 * see result->errors), the value of a STOP, -EINTR after an interrupt, or the
 * first error that ended it. `result` may be NULL; free what it holds with
 * poise_walk_result_free.
 */
POISE_API int poise_walk_run(struct poise_world *world,
                             const struct poise_walk_options *options,
                             const struct poise_walk_hooks *hooks,
                             struct poise_walk_result *result);
POISE_API void poise_walk_result_free(struct poise_walk_result *result);

/** Append the job bytes (options.pool.job) of a walk's checkpoint to `out`,
 * without running it. -EBADMSG if it is not one of a walk, -EINVAL if its
 * names are relative to another working directory. Local. */
POISE_API int poise_walk_checkpoint_job(const char *path,
                                        struct poise_buf *out);

/* ---- the summary -------------------------------------------------------- */

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
    /** Largest files, largest first; of equal ones, here and below, the
     * bytewise smallest path first; of several names the smallest. */
    struct poise_walk_named *files;
    size_t file_count;
    /** With most entries. Of equal ones that were read in pieces, which are
     * large, only 64 more than asked for are told apart. */
    struct poise_walk_named *directories;
    size_t directory_count;
    struct poise_walk_owner *owners; /**< by allocated bytes, then uid */
    size_t owner_count;
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

/* ---- du ----------------------------------------------------------------- */

struct poise_walk_du_options {
    struct poise_walk_options walk;
    bool apparent;    /**< sizes instead of disk usage */
    bool inodes;      /**< count inodes instead */
    bool count_links; /**< -l: a hard-linked file counts each time */
    bool all;         /**< -a: a line for files too */
    bool separate;    /**< -S: without subdirectories */
    bool total;       /**< -c: a grand total at the end */
    bool has_max_depth;
    uint32_t max_depth;         /**< lines for at most this depth */
    const char *const *exclude; /**< shell patterns, as du --exclude */
    size_t exclude_count;
    int (*error)(struct poise_worker *worker, const struct poise_error *err,
                 void *arg);
    /** One line: bytes (or inodes) and path; on rank 0, in the order of GNU du
     * for directories (children first), operands in order. `path` NULL: the
     * grand total. */
    int (*line)(uint64_t amount, const char *path, size_t path_len, void *arg);
    void (*progress)(const struct poise_pool_stats *stats, void *arg);
    void *arg;
};
/** Collective; return codes as poise_walk_run. */
POISE_API int poise_walk_du(struct poise_world *world,
                            const struct poise_walk_du_options *options,
                            struct poise_walk_result *result);

/* ---- find --------------------------------------------------------------- */

/** A compiled find expression: immutable, shared by all workers. */
struct poise_walk_find;

/**
 * Compile the arguments of find after its start paths (tests, actions,
 * operators; names and meanings of GNU find). Local; -EINVAL names the word
 * at fault, and the nearest known one.
 */
POISE_API int poise_walk_find_compile(int argc, const char *const *argv,
                                      struct poise_walk_find **out);
POISE_API void poise_walk_find_destroy(struct poise_walk_find *find);

struct poise_walk_find_options {
    struct poise_walk_options walk; /**< roots, pool; depth limits and -xdev
                                         come from the expression */
    const struct poise_walk_find *find;
    /** Output bytes: whole lines (or NUL-ended records), on rank 0. */
    int (*output)(const void *data, size_t len, void *arg);
    int (*error)(struct poise_worker *worker, const struct poise_error *err,
                 void *arg);
    /** -ok and -okdir: put the question, return whether the answer is yes.
     * One call at a time, any worker. NULL: those actions are -ENOTSUP, as
     * they always are in a world of several ranks. */
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
/** All primaries with one line of help each, for --help and completion:
 * pairs name, text; NULL-terminated. */
POISE_API const char *const *poise_walk_find_primaries(void);

/* ---- making one entry whole -------------------------------------------------
 *
 * What an entry is, apart from its name and its data, is `struct
 * poise_walk_meta`. An entry is made from that and, if it is a regular file,
 * from data that come from anywhere: a wire, another file, a reflink. It is
 * made beside its place under a temporary name, gets its attributes, times
 * last, and appears under its own name by a rename: whoever looks sees what
 * was there before, or all of the new entry. Links are never followed.
 *
 * Names are of one component, relative to a descriptor of their directory.
 * All functions are local and safe in any thread; two that make the same name
 * at a time leave one of the two entries.
 */

enum {
    POISE_WALK_KEEP_MODE = 1,
    POISE_WALK_KEEP_OWNER = 2,  /**< user (by root only) and group (where the
                                     process is allowed to give it away) */
    POISE_WALK_KEEP_TIMES = 4,  /**< of modification */
    POISE_WALK_KEEP_XATTRS = 8, /**< user.*, access lists; for root also
                                     trusted.* and file capabilities */
    POISE_WALK_KEEP_ALL = 15,
};

struct poise_walk_meta {
    uint32_t mode; /**< type and permissions, as st_mode */
    uint32_t uid, gid;
    uint32_t major, minor; /**< devices */
    uint64_t size;         /**< regular files: how long they become */
    struct timespec mtime;
    bool sparse;        /**< regular files: has holes; long zeros become some */
    const char *target; /**< symbolic links; borrowed */
    const void *xattrs; /**< (name, value) as poise_buf_blob wrote them, in the
                             order of names; borrowed */
    size_t xattrs_len;
    /* Told by poise_walk_meta_get, never given. */
    uint64_t dev, ino;
    uint32_t links;
};

/** The metadata of an entry, links not followed; with xattrs if `keep` says
 * so. Strings are appended to `memory`, which is reset before. Where the file
 * system has no xattrs there are none. */
POISE_API int poise_walk_meta_get(int dirfd, const char *name, unsigned keep,
                                  struct poise_walk_meta *meta,
                                  struct poise_buf *memory);

/** A regular file in the making; zero-initialised is none. The fields are
 * not for the caller to change. */
struct poise_walk_making {
    int fd;    /**< the file, for reading and writing: data may also be put
                    into it directly (FICLONE, copy_file_range) */
    int dirfd; /**< borrowed until the end */
    const char *name;   /**< the same */
    char temporary[40]; /**< its name so far; "": none is being made */
    uint64_t at;        /**< bytes so far */
    bool sparse;
};

/** Names of temporary files begin so. */
#define POISE_WALK_TEMPORARY ".poise-making-"

/** Begin a file. `sparse`: zeros become holes. */
POISE_API int poise_walk_make_begin(struct poise_walk_making *making, int dirfd,
                                    const char *name, bool sparse);
/** The next bytes. */
POISE_API int poise_walk_make_data(struct poise_walk_making *making,
                                   const void *data, size_t len);
/** The next bytes are a hole. */
POISE_API int poise_walk_make_hole(struct poise_walk_making *making,
                                   uint64_t len);
/** Give it its length, its attributes and its name. `replace`: a whole
 * directory that has the name goes; else -EISDIR if it is not empty. Whatever
 * happens the making is over, and nothing temporary is left. */
POISE_API int poise_walk_make_commit(struct poise_walk_making *making,
                                     const struct poise_walk_meta *meta,
                                     unsigned keep, bool replace);
/** Give up; also where none is being made. */
POISE_API void poise_walk_make_abort(struct poise_walk_making *making);

/** Make a symbolic link, pipe, socket or device, in the same way. */
POISE_API int poise_walk_make_special(int dirfd, const char *name,
                                      const struct poise_walk_meta *meta,
                                      unsigned keep, bool replace);
/** Make `name` a hard link to an entry that is there: 1; 0 if it was one. */
POISE_API int poise_walk_make_link(int from_dirfd, const char *from, int dirfd,
                                   const char *name, bool replace);
/** Make a directory that only its owner may enter: 1; 0 if there was one,
 * which its owner may now change. What else has the name goes. Its attributes
 * belong to it when all is in it: poise_walk_make_attributes. */
POISE_API int poise_walk_make_directory(int dirfd, const char *name);
/** Give an entry that is there the attributes of `meta`, where they differ:
 * 1; 0 if there was nothing to change. */
POISE_API int poise_walk_make_attributes(int dirfd, const char *name,
                                         const struct poise_walk_meta *meta,
                                         unsigned keep);
/** Remove an entry with all that is below it. Directories deeper than the
 * process may open descriptors are -EMFILE. 0 as well if there is none. */
POISE_API int poise_walk_remove(int dirfd, const char *name);

#ifdef __cplusplus
}
#endif

#endif
