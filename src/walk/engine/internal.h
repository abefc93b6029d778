/*
 * Shared inside the walk's engine: directories as nodes, the cache of
 * descriptors, the reader of one range, and the state of one run.
 *
 * Who calls whom: run.c (one run over a pool) -> read.c (a task: a range of
 * one directory) -> entry.c (what callbacks may ask) -> descriptors.c -> dir.c
 * (chains of names). pack.c turns tasks into bytes and back, leave.c counts
 * what is still to come below a directory.
 */
#ifndef WALK_ENGINE_INTERNAL_H
#define WALK_ENGINE_INTERNAL_H

#include <poise/walk.h>

#include <pthread.h>

/** Set in the environment of a benchmark or a test, it makes one task of each
 * entry instead of one of each directory: the paper's central scheme (tree-walk
 * II.B), to compare with. Not for users. */
#define WALK_SINGLE_ENTRIES "POISE_WALK_SINGLE_ENTRIES"

/** The position behind the last entry of any directory. Positions are the
 * d_off of the entry before; nothing can follow the largest off_t. */
#define WALK_END ((uint64_t)INT64_MAX)
/** No position: of a descriptor that no task may go on reading. */
#define WALK_NOWHERE UINT64_MAX

enum {
    WALK_BUFFER_BYTES = 64 << 10, /* larger ones gain nothing (measured) */
    /* Room for one more record: 19 bytes, 255 of name, rounded up. */
    WALK_RECORD_MOST = 280,
    WALK_CHILDREN_MOST = WALK_BUFFER_BYTES / 24,
    WALK_CHECK_ENTRIES = 16,   /* between looks at the clock */
    WALK_COMMIT_ENTRIES = 256, /* with metadata: between commits */
};

/* ---- dir.c: directories as chains of names ------------------------------ */

/** A descriptor in the cache (descriptors.c). `state` is (fd + 1) << 32 | pins,
 * 0 if there is none: __atomic. The links belong to the cache's lock. */
struct walk_handle {
    uint64_t state;
    struct walk_handle *older, *newer;
    uint32_t used; /* __atomic: pinned since the last look for victims */
};

struct poise_walk_dir {
    struct poise_walk_dir *parent; /* one reference; NULL: a root */
    uint32_t refs;                 /* __atomic */
    uint32_t depth, root, name_len;
    uint64_t tag;
    void *slot;
    uint64_t ino;  /* as entry.ino; of stat if `verified` */
    uint64_t dev;  /* if `verified`, or inherited with one_file_system */
    bool verified; /* dev and ino are what stat said */
    bool linked;   /* a link was followed on the way here, or may have been */

    struct walk_handle handle;
    struct walk_handle *twin; /* __atomic: of its counterpart; NULL: never
                                 asked for. Owned */
    uint64_t read_at; /* __atomic: where the cached descriptor stands, if
                         the first task that comes may read on with it */

    /* Option post (leave.c). */
    uint32_t pending; /* __atomic: tasks and entered children not done */
    int32_t origin_rank;
    uint64_t origin; /* id of the waiting directory there; 0: none */

    char name[];
};

/** A node with one reference, taking over none: `parent` gets one more. */
struct poise_walk_dir *walk_dir_create(struct poise_walk_dir *parent,
                                       unsigned root, const char *name,
                                       size_t name_len);
static inline void walk_dir_ref(struct poise_walk_dir *dir)
{
    __atomic_fetch_add(&dir->refs, 1, __ATOMIC_RELAXED);
}
/** Bytes that a node holds, with what malloc adds. */
static inline size_t walk_dir_bytes(const struct poise_walk_dir *dir)
{
    return sizeof *dir + dir->name_len + 1 + 16;
}
/** Append "name/" of all directories down to `dir` (a root that ends in a
 * slash gets no other). */
int walk_dir_prefix(const struct poise_walk_dir *dir, struct poise_buf *out);

/* ---- descriptors.c ------------------------------------------------------ */

struct walk_fds {
    pthread_mutex_t lock;
    struct walk_handle *oldest, *newest; /* under the lock */
    unsigned open, limit;                /* under the lock */
    const char *const *counterparts;     /* of operands; NULL: none. Borrowed */
    enum poise_walk_follow follow;
    int no_openat2; /* __atomic: the kernel or a sandbox refuses it */
    int roots_fd;   /* that operands are relative to, or AT_FDCWD */
};

/** `counterparts` as in the options: more is left to each worker then. */
int walk_fds_init(struct walk_fds *fds, unsigned wanted,
                  const char *const *counterparts, unsigned *workers);
void walk_fds_finish(struct walk_fds *fds);
/** Release one reference; frees the chain as far as it is not used. */
void walk_dir_unref(struct walk_fds *fds, struct poise_walk_dir *dir);

/** Names in `chain` are borrowed while a directory is being reopened. */
struct walk_chain {
    const struct poise_walk_dir **dirs;
    size_t count, cap;
    struct poise_buf piece;
    bool twin; /* it is the counterparts that are being opened */
};
void walk_chain_free(struct walk_chain *chain);

/** A descriptor of `dir` for *at() calls, not evicted until unpinned.
 * Negative errno, not recorded. */
int walk_fd_pin(struct walk_fds *fds, struct poise_walk_dir *dir,
                struct walk_chain *chain);
void walk_fd_unpin(struct poise_walk_dir *dir);
/** The same for its counterpart; O_PATH. -ENOTDIR if that is no directory. */
int walk_twin_pin(struct walk_fds *fds, struct poise_walk_dir *dir,
                  struct walk_chain *chain);
void walk_twin_unpin(struct poise_walk_dir *dir);
/** Pin it if it is open now; -1 otherwise. */
int walk_fd_try_pin(struct poise_walk_dir *dir);
/** Open `dir` through its parent for the caller alone. `crossed`: a mount
 * begins here (false also where the kernel does not say). Negative errno, not
 * recorded. */
int walk_fd_open(struct walk_fds *fds, struct poise_walk_dir *dir,
                 struct walk_chain *chain, bool *crossed);
/** A second description of an open directory. */
int walk_fd_again(struct walk_fds *fds, int fd);
/** Offer `fd` to the cache; returns a pinned descriptor of `dir`: `fd`, which
 * the cache then owns, or the one that was there before. */
int walk_fd_publish(struct walk_fds *fds, struct poise_walk_dir *dir, int fd);

/* ---- one run ------------------------------------------------------------ */

enum walk_kind {
    WALK_ROOT,  /* look at operand `root` and begin there */
    WALK_RANGE, /* read dir in [from, to) */
    WALK_ENTRY, /* of single entries: one entry of dir, its name follows */
};

/** A task in this process; holds one reference to dir. */
struct walk_task {
    struct poise_walk_dir *dir;
    uint64_t from, to; /* RANGE; ENTRY: from is the inode number */
    uint32_t kind;
    uint32_t root; /* ROOT; ENTRY: the type */
};

struct walk_worker;

/** An entry together with what callbacks can ask about it. */
struct walk_view {
    struct poise_walk_entry entry; /* first: what callbacks see */
    struct walk_worker *w;
    struct poise_walk_dir *self; /* in leave */
    uint64_t tag;                /* given by poise_walk_tag_set */
    int fd;                      /* of entry.dir; -1: not asked for yet */
    bool pinned;                 /* fd must be unpinned after the callback */
    bool paired;                 /* twin_fd is the counterpart's, pinned */
    int twin_fd;
    bool linked; /* it, or a directory above it, was a link that was followed */
    bool prefixed; /* the worker's prefix is the path of entry.dir */
    unsigned have; /* fields asked for that are in stx */
    struct statx *stx;
};

struct walk_profile {
    uint64_t readdir, stat, visit; /* ticks */
};

struct walk_worker {
    struct walk *walk;
    struct poise_worker *worker;
    char *buffer;                     /* [WALK_BUFFER_BYTES] */
    struct poise_walk_dir **children; /* [WALK_CHILDREN_MOST], not yet tasks */
    unsigned child_count;
    struct poise_walk_dir *done; /* released when the next task starts: its
                                    record is in the pool until then */
    struct walk_chain chain;
    struct poise_buf prefix, path, packed;
    const struct poise_walk_dir *prefix_of; /* valid during one task */
    struct statx stx;
    int verdict; /* what ends the walk: a stop (>= 2) or an error (< 0) */
    uint64_t entries, errors; /* since the last commit */
    uint64_t committed_entries,
        committed_errors; /* under the pool's lock; entries are
              read without it, too: __atomic */
    uint64_t polled_at, committed_at, split_at; /* ticks */
    unsigned sampled; /* statx calls, to time one of some */
    struct walk_profile profile;
} __attribute__((aligned(128)));

/** Directories whose subtree is with another rank; leave.c. */
struct walk_waiting {
    pthread_mutex_t lock;
    struct poise_walk_dir **dirs; /* by id - 1 */
    uint64_t *next_free;
    size_t count, cap;
    uint64_t first_free; /* id; 0: none */
};

/** The directories of the task unpacked last: the next one is often near. */
struct walk_unpack {
    pthread_mutex_t lock;
    struct poise_walk_dir *last;  /* one reference */
    struct poise_walk_dir **line; /* [depth]: last's chain from the root on */
    size_t count, cap;
    const unsigned char **names;
    size_t *lens;
    uint64_t *tags;
    size_t part_cap;
};

struct walk {
    struct poise_walk_options options;
    struct poise_walk_hooks hooks;
    bool single_entries;       /* see WALK_SINGLE_ENTRIES */
    struct poise_world *world; /* NULL: alone */
    struct poise_pool *pool;
    int rank, size;
    struct walk_fds fds;
    struct walk_waiting waiting;
    struct walk_unpack unpack;
    struct walk_worker *workers;
    unsigned worker_count;
    uint64_t slow_ticks, poll_ticks, commit_ticks, split_ticks;
    uint64_t loaded_entries, loaded_errors; /* of a resumed checkpoint */
};

/* ---- run.c -------------------------------------------------------------- */

/** From a struct walk with options, hooks, world, rank and size: all that is
 * needed but the first tasks. Collective; walk_finish also after a failure. */
int walk_begin(struct walk *walk);
void walk_finish(struct walk *walk);

/* ---- job.c -------------------------------------------------------------- */

/** What a checkpoint of this walk and a resume must agree on. */
int walk_job_write(const struct walk *walk, struct poise_buf *job);

/* ---- entry.c ------------------------------------------------------------ */

/** Record an error about `name` in `dir` (either may be NULL; `why` NULL: the
 * text of `code`), count it and call the hook error. 0, or what ends the walk
 * (also in w->verdict). */
int walk_report(struct walk_worker *w, int code, const char *doing,
                const struct poise_walk_dir *dir, const char *name,
                const char *why);
/** Call visit. Returns POISE_WALK_ON, _SKIP, or w->verdict if it ends. */
static inline int walk_visit(struct walk_view *view)
{
    struct walk_worker *w = view->w;
    int (*visit)(struct poise_walk_entry *, void *) = w->walk->hooks.visit;
    w->entries++;
    int rc = visit ? visit(&view->entry, w->walk->hooks.arg) : POISE_WALK_ON;
    if (rc < 0 || rc >= POISE_WALK_STOP) {
        w->verdict = rc;
    }
    return w->verdict ? w->verdict : rc;
}
/** Whether the entry, if it is a symbolic link, is what that leads to. */
static inline bool walk_view_follows(const struct walk_view *view)
{
    enum poise_walk_follow follow = view->w->walk->options.follow;
    return follow == POISE_WALK_FOLLOW_ALL ||
           (follow == POISE_WALK_FOLLOW_OPERANDS && !view->entry.dir);
}
/** Release what callbacks asked for. */
void walk_view_end(struct walk_view *view);
/** Fill view->stx; 0, or a negative errno that is not recorded. */
int walk_view_stat(struct walk_view *view, unsigned mask);
unsigned char walk_type_of(mode_t mode);

/* ---- read.c ------------------------------------------------------------- */

/** Run a task of kind RANGE. Takes over the task's reference. */
int walk_read(struct walk_worker *w, const struct walk_task *task);
/** The node that a visited directory becomes, counted as its parent's child,
 * in *child; NULL if it is not to be entered. 0 or negative. */
int walk_enter(struct walk_view *view, struct poise_walk_dir **child);
/** Add the task (dir, from, to); takes over a reference to `dir`. */
int walk_add_range(struct walk_worker *w, struct poise_walk_dir *dir,
                   uint64_t from, uint64_t to);

/* ---- pack.c ------------------------------------------------------------- */

int walk_pack(struct walk *walk, const struct walk_task *task, size_t len,
              struct poise_buf *out);
int walk_unpack(struct walk *walk, const void *packed, size_t len,
                struct poise_buf *out);
void walk_unpack_finish(struct walk *walk);

/* ---- leave.c ------------------------------------------------------------ */

/** One thing less to do below `dir`; calls leave where nothing is left. */
int walk_leave_done(struct walk_worker *w, struct poise_walk_dir *dir);
/** Call leave for a directory that is not entered. */
int walk_leave_unentered(struct walk_view *view);
/** A task of `dir` was packed: let `dir` wait under an id until its end is
 * notified, still counted as pending; 0: no memory. */
uint64_t walk_leave_wait(struct walk *walk, struct poise_walk_dir *dir);
int walk_leave_notified(struct walk_worker *w, const void *data, size_t len);
void walk_leave_finish(struct walk *walk);

#endif
