/*
 * poise/walk.h - walk huge file trees in parallel: an ftw-like engine.
 *
 * poise_walk_run calls back for each entry, on threads of one process or on
 * ranks of a world, over the task pool. <poise/survey.h>, <poise/du.h> and
 * <poise/find.h> stand on it.
 *
 * A task of the walk is (directory, from, to): a range of a directory's own
 * order, by its d_off cookies. A running task publishes its progress as a
 * shorter range, an idle worker is given the upper part of one, and a
 * checkpoint stores them: reading one huge directory is shared like any other
 * work. Paths are kept as chains of names from directory to parent, so their
 * length has no limit; descriptors are a cache and may be as few as 16.
 *
 * A large file can be a task of the same kind, (file, from, to) in bytes: its
 * chunks are shared, committed and saved like a huge directory's ranges
 * (poise_walk_chunks_set). What is below an operand can be paired with what has
 * the same names below another directory (options.counterparts).
 *
 * Symbolic links are reported, and followed only if options.follow says so.
 * Source: tree-walk III.A, IV.
 */
#ifndef POISE_WALK_H
#define POISE_WALK_H

#include <poise/base.h>
#include <poise/comm.h>
#include <poise/task.h>

#include <sys/stat.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A directory of the tree, or a file that is worked on in chunks, within this
 * process. */
struct poise_walk_dir;
struct statx; /* <sys/stat.h> has it with _GNU_SOURCE only */

/** One entry, as callbacks see it; valid during the call. The functions below
 * want this very struct, not a copy of it. */
struct poise_walk_entry {
    const char *name; /**< NUL-terminated; the operand as given, if a root */
    size_t name_len;
    struct poise_walk_dir *dir; /**< the directory that holds it; NULL: root */
    unsigned root;      /**< index of the operand below which it was found */
    uint32_t depth;     /**< 0: a root */
    unsigned char type; /**< DT_REG, DT_DIR, ...; DT_UNKNOWN never */
    uint64_t ino;       /**< as the directory has it; of roots from stat */
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
/** A descriptor for *at() calls together with entry->name; for roots AT_FDCWD,
 * or options.roots_fd. Borrowed, valid during the callback. Negative errno if
 * the directory cannot be reopened: that was already counted and reported to
 * the hook error, so that visit should just go on. */
POISE_API int poise_walk_dirfd(const struct poise_walk_entry *entry);
/** Metadata, with at least the fields of `mask` (STATX_*): what the walk has
 * already, or one statx (following links as options.follow says). Borrowed,
 * valid during the callback. A failure was already counted and reported to the
 * hook error, so that visit should just go on. */
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
 * (poise_walk_tag_set on the entry), carried along to other ranks and
 * through checkpoints; 0 if none. */
POISE_API uint64_t poise_walk_dir_tag(const struct poise_walk_dir *dir);
/** During visit: the tag of the directory, or file in chunks, it will become.
 */
POISE_API void poise_walk_tag_set(struct poise_walk_entry *entry, uint64_t tag);
/** During `leave` and `chunk`: the directory or file in hand itself
 * (entry->dir is what holds it), for its tag, slot and marks; elsewhere, and of
 * a directory that was not entered, NULL. */
POISE_API struct poise_walk_dir *
poise_walk_self(const struct poise_walk_entry *entry);

/** During visit of anything that is not a directory, if visit then returns
 * POISE_WALK_ON: what is to be done with it are the bytes [0, length), in
 * calls of the hook `chunk`, here or on any other worker or rank, and then
 * `leave`, once no chunk is left. Wants option post. What `length` counts is
 * the caller's affair (with chunk_bytes in the same unit); 0: `leave` follows
 * without a chunk. */
POISE_API void poise_walk_chunks_set(struct poise_walk_entry *entry,
                                     uint64_t length);

/** After poise_walk_chunks_set: its chunks are not given away but worked on one
 * after the other, in their order, where others would only be in the way. */
POISE_API void poise_walk_chunks_alone(struct poise_walk_entry *entry);

/** With read_ahead: the callback may have changed something in the tree. What
 * was read ahead until now is looked at again. */
POISE_API void poise_walk_changed(const struct poise_walk_entry *entry);

/** Bits that whoever works on a directory or a file in chunks leaves for its
 * `leave`, on whichever rank that is called: the bitwise or of all. Through
 * poise_walk_self in chunk or leave, or on entry->dir in any callback. Some may
 * be there although what set them was killed and is done again. Wants option
 * post. */
POISE_API void poise_walk_mark(struct poise_walk_dir *dir, uint64_t bits);
/** Those bits; all of them during leave. */
POISE_API uint64_t poise_walk_marks(const struct poise_walk_dir *dir);

/** With options.counterparts: the directory that corresponds to entry->dir
 * below the counterpart of its operand, together with entry->name (for a root
 * AT_FDCWD and poise_walk_counterpart_name), for *at() calls. An O_PATH
 * descriptor: to read or to sync the directory open "." there. Borrowed, valid
 * during the callback. Below the counterpart itself, which may be a symbolic
 * link, none is followed. -ENOENT: there is none; -ENOTDIR: it is something
 * else; both are not errors of the walk and recorded nowhere. Another negative
 * errno was counted and reported to the hook error. */
POISE_API int poise_walk_counterpart_fd(const struct poise_walk_entry *entry);
/** entry->name; of a root the path of its counterpart. */
POISE_API const char *
poise_walk_counterpart_name(const struct poise_walk_entry *entry);

/** The user's callbacks; unused ones are NULL. Worker threads call them,
 * several at the same time: what they share wants a lock or atomics. How many
 * threads there are is pool.threads of the options (<poise/task.h>). */
struct poise_walk_hooks {
    /** Each entry once, directories before what is in them. Returns one of
     * POISE_WALK_*, or a negative errno to stop with an error. */
    int (*visit)(struct poise_walk_entry *entry, void *arg);
    /** Option post: each directory that visit answered with POISE_WALK_ON,
     * after everything below it; at once if it is not entered (depth limit,
     * other file system). And each file in chunks, after the last one. On any
     * rank. Once; over a kill and a resume at least once, and never before all
     * below it is done (what of it was done after the last checkpoint is done
     * again, before leave is called again). */
    int (*leave)(struct poise_walk_entry *entry, void *arg);
    /** A chunk of a file for which visit called poise_walk_chunks_set: bytes
     * [offset, offset + length), length > 0, offset a multiple of chunk_bytes;
     * only the last is shorter. The file may have changed since the visit:
     * that is the hook's to find out. When it returns the chunk counts as done,
     * for a checkpoint too. POISE_WALK_SKIP: the chunks of this file that this
     * task still holds are left out (others may have been given away, and are
     * asked for themselves); else as visit. */
    int (*chunk)(struct poise_walk_entry *entry, uint64_t offset,
                 uint64_t length, void *arg);
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

/** Which symbolic links are what they lead to: their type and metadata, and a
 * directory is entered. One that leads nowhere is a link all the same. One that
 * leads to a directory above it is not visited, but -ELOOP to the hook error.
 */
enum poise_walk_follow {
    POISE_WALK_FOLLOW_NONE,
    POISE_WALK_FOLLOW_OPERANDS,
    POISE_WALK_FOLLOW_ALL,
};

/** In which order entries are visited. */
enum poise_walk_order {
    POISE_WALK_ORDER_ANY, /**< by all workers at once */
    /** By one worker of one process (a world of several ranks is -EINVAL, and
     * so are checkpoints): depth first, each directory before what is in it,
     * its entries as the directory has them; one of over 10,000 entries by
     * inode, as fts of GNU find does, but on tmpfs, NFS and CIFS. */
    POISE_WALK_ORDER_DIRECTORY,
    POISE_WALK_ORDER_NAME, /**< so, but each directory's by name (strcoll) */
};

/** Whether threads read coming directories, and the metadata wanted of what is
 * in them, before a walk in an order comes to them: bits. */
enum poise_walk_ahead {
    POISE_WALK_AHEAD = 1, /**< where reading is slow, 0.1 ms a directory; one
                               thread more than the pool's (of one: none), at
                               most 32 directories of 1 MiB each and, of the
                               descriptors, half or 32. Callbacks call
                               poise_walk_changed. Not where links are followed
                               everywhere */
    POISE_WALK_AHEAD_ASK = 2,   /**< some may not be entered in the end: nothing
                                     is mounted automatically for them */
    POISE_WALK_AHEAD_ATIME = 4, /**< times of access are looked at: they are
                                     set when the walk comes there; what is
                                     not one's own is not read ahead */
};

struct poise_walk_options {
    const char *const *roots; /**< operands; the same on all ranks */
    size_t root_count;
    unsigned statx_mask;  /**< fields wanted of every entry (STATX_*), fetched
                               ahead of visit; 0: names and types only */
    bool one_file_system; /**< do not enter other file systems (each root's
                               own): their mount points are visited */
    bool post;            /**< call `leave` */
    /** [root_count] paths (not relative to one another, but to the working
     * directory, as roots are); the same on all ranks. NULL: none. */
    const char *const *counterparts;
    uint64_t chunk_bytes; /**< at most so much a call of `chunk`, and the least
                               that is given away; 0: 8 MiB */
    uint32_t max_depth;   /**< entries deeper are not read; 0: no limit,
                               set `max_depth_is_zero` for roots only */
    bool max_depth_is_zero;
    enum poise_walk_follow follow;
    enum poise_walk_order order;
    unsigned read_ahead;  /**< enum poise_walk_ahead; 0: not */
    unsigned descriptors; /**< how many to keep open; 0: from RLIMIT */
    int roots_fd;         /**< > 0: a descriptor of the directory that relative
                               operands lead from, borrowed; not with a checkpoint.
                               0: the working directory */
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

#ifdef __cplusplus
}
#endif

#endif
