/*
 * Shared inside the walk's engine: directories as nodes, the cache of
 * descriptors, the reader of one range, and the state of one run.
 *
 * Who calls whom: run.c (one run over a pool) -> read.c (a task: a range of
 * one directory; ordered.c: all of them in an order, with listing.c and the
 * threads of ahead.c) or chunks.c (one of a
 * file) -> entry.c (what callbacks may ask) -> descriptors.c -> dir.c (chains
 * of names). pack.c turns tasks into bytes and back, leave.c counts what is
 * still to come below a directory, waiting.c knows those that wait for
 * something which is not here, and brings them through a checkpoint.
 */
#ifndef WALK_ENGINE_INTERNAL_H
#define WALK_ENGINE_INTERNAL_H

#include <poise/checkpoint.h>
#include <poise/core.h>
#include <poise/walk.h>

#include <dirent.h>
#include <pthread.h>

/** Set in the environment of a benchmark or a test, it makes one task of each
 * entry instead of one of each directory: the paper's central scheme (tree-walk
 * II.B), to compare with. Not for users. */
#define WALK_SINGLE_ENTRIES "POISE_WALK_SINGLE_ENTRIES"
/** Set in the environment of a test: read ahead also where that is quick. */
#define WALK_READ_AHEAD "POISE_WALK_READ_AHEAD"

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

/** A directory; or a file that is worked on in chunks, which has no children.
 */
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
    union {
        uint64_t read_at; /* __atomic: where the cached descriptor stands, if
                             the first task that comes may read on with it */
        uint64_t length;  /* of a file, at the visit */
    };

    /* Option post (leave.c). */
    uint32_t pending; /* __atomic: tasks and entered children not done */
    bool begun;       /* __atomic: a task of it was run, or it was loaded */
    uint8_t type;     /* DT_DIR, or that of a file in chunks */
    bool alone;       /* of a file in chunks: they are not given away */
    bool copy;        /* its original waits elsewhere, and is left there */
    uint64_t marks;   /* __atomic */
    struct walk_wait *wait; /* __atomic; owned. NULL: never needed */

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
    WALK_ROOT,    /* look at operand `root` and begin there */
    WALK_RANGE,   /* read dir in [from, to) */
    WALK_ENTRY,   /* of single entries: one entry of dir, its name follows */
    WALK_CHUNKS,  /* the bytes [from, to) of dir, a file */
    WALK_ORDERED, /* everything, in an order: never leaves this process */
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
    struct poise_walk_dir *self; /* during leave: the directory itself */
    uint64_t tag;                /* given by poise_walk_tag_set */
    int fd;                      /* of entry.dir; -1: not asked for yet */
    bool pinned;                 /* fd must be unpinned after the callback */
    bool chunked; /* poise_walk_chunks_set was called: `length` */
    bool alone;   /* and poise_walk_chunks_alone */
    uint64_t length;
    bool paired; /* twin_fd is the counterpart's, pinned */
    int twin_fd;
    bool linked; /* it, or a directory above it, was a link that was followed */
    bool prefixed;  /* the worker's prefix is the path of entry.dir */
    unsigned have;  /* fields asked for that are in stx */
    unsigned ready; /* fields that are in stx before anybody asks */
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
    struct poise_walk_dir *told; /* of what it had away something has ended; to
                                    be said at the commit */
    struct poise_walk_dir *dropped; /* a reference to be released, as done */
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

/** What a directory has to do with others that are not here (leave.c). But for
 * `origin`, which is there from the start, under the lock of the table. */
struct walk_wait {
    struct poise_walk_dir *dir; /* whose it is */
    struct walk_wait *next;     /* in its bucket */
    uint64_t id;                /* how others name it; 0: nobody does, and it
                                   is not in the table */
    uint64_t origin;            /* who waits for its end; 0: its parent, here */
    int32_t origin_rank;
    uint32_t away;  /* what names `id`: packed tasks and children, or news of
                       their end that were not yet committed */
    uint32_t saved; /* the same, only in the snapshot under way */
};

/** Directories that something away from here names; each entry has a reference
 * to its directory (waiting.c). */
struct walk_waiting {
    pthread_mutex_t lock;
    struct walk_wait **buckets; /* [bucket_count], a power of two, or 0 */
    size_t bucket_count, count;
    uint64_t next_id; /* ids of all ranks and runs differ */
};

/** How a packed task, or a directory in a checkpoint, says who waits for its
 * end. */
struct walk_ticket {
    bool leaves; /* it is the directory itself, no copy */
    int rank;
    uint64_t id; /* 0: nobody, it is a root */
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
    unsigned readers; /* threads that may read ahead */
    uint64_t changes; /* __atomic: poise_walk_changed was called so often */
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
/** The node that a visited directory becomes, or what is to be done in chunks,
 * counted as its parent's child, in *child; NULL if it is not to be entered. 0
 * or negative. */
int walk_enter_any(struct walk_view *view, struct poise_walk_dir **child);
/** All of a child, entered just now, as a task. */
struct walk_task walk_task_of(struct poise_walk_dir *child);
/** Add a task, which takes over a reference to its directory. */
int walk_add_task(struct walk_worker *w, const struct walk_task *task);

/* ---- chunks.c ----------------------------------------------------------- */

/** Run a task of kind CHUNKS. Takes over the task's reference. */
int walk_chunks(struct walk_worker *w, const struct walk_task *task);

/** Before the visit of an entry of a directory, whose type there is `d_type`:
 * metadata that are wanted, links that are followed. 1: it is not to be
 * visited, which was reported; w->verdict may be set. */
int walk_prepare(struct walk_view *view, unsigned char d_type);
/** Whether `dir` or a directory above it is this one. */
bool walk_is_loop(struct walk_worker *w, struct poise_walk_dir *dir,
                  uint64_t dev, uint64_t ino);

/* ---- listing.c ---------------------------------------------------------- */

/** A directory's entries, or a part of them, in the order of visits. */
struct walk_listing {
    struct poise_buf records; /* of dirent64, as the kernel packs them */
    size_t *entries;          /* [count + 1]: where in `records` */
    size_t count;
    uint64_t next; /* position of the next part; WALK_END: there is none */
};
static inline const struct dirent64 *
walk_listing_entry(const struct walk_listing *listing, size_t index)
{
    return (const void *)(listing->records.data + listing->entries[index]);
}
/** Replace it by what `fd` gives next. `buffer`: [WALK_BUFFER_BYTES]. *failed:
 * 0, or why the rest could not be read. -EFBIG: at least `bytes_most`. Negative
 * errno, not recorded. */
int walk_listing_read(struct walk_listing *listing, int fd, bool by_name,
                      size_t bytes_most, char *buffer, int *failed);
void walk_listing_free(struct walk_listing *listing);

/* ---- ahead.c ------------------------------------------------------------ */

/** The threads that read ahead; where on the way to the entry in hand they look
 * for coming directories; a directory that was read, or is being read. */
struct walk_ahead;
struct walk_place;
struct walk_node;

/** What was read ahead of a directory: all of it is the caller's. */
struct walk_found {
    struct walk_listing listing;
    struct statx *stats; /* [listing.count], or NULL; one that could not be had
                            has the mask 0 */
    struct walk_place *place;
    uint64_t dev, ino, changes;
    int fd;
};

/** NULL: nothing is to be read ahead, or cannot be. All else but walk_ahead_use
 * takes NULL for it. For one thread. */
struct walk_ahead *walk_ahead_create(struct walk *walk);
/** Ends the threads; to be called before the last places are left. */
void walk_ahead_stop(struct walk_ahead *ahead);
void walk_ahead_destroy(struct walk_ahead *ahead);
/** A directory took so long to be opened and read. */
void walk_ahead_took(struct walk_ahead *ahead, uint64_t ticks);
/** The walk goes into a directory that was not read ahead, whose `listing`
 * stays as it is until the place is left. NULL: nothing is to be read ahead
 * there. */
struct walk_place *walk_ahead_enter(struct walk_ahead *ahead,
                                    struct poise_walk_dir *dir,
                                    const struct walk_listing *listing);
/** The last place that was entered; NULL does nothing. */
void walk_ahead_leave(struct walk_ahead *ahead, struct walk_place *place);
/** The directory at this index of the listing, which the walk comes to now;
 * NULL if it was not begun. To be dropped or used. */
struct walk_node *walk_ahead_take(struct walk_ahead *ahead,
                                  struct walk_place *place, size_t index);
void walk_ahead_drop(struct walk_ahead *ahead, struct walk_node *node);
/** Take over what was read ahead of `dir`, and go into it. False if that is
 * nothing, or may be another than is there now. */
bool walk_ahead_use(struct walk_ahead *ahead, struct walk_node *node,
                    struct walk_worker *w, struct poise_walk_dir *dir,
                    struct walk_found *out);

/* ---- ordered.c ---------------------------------------------------------- */

/** Run the task of kind ORDERED, of these bytes. */
int walk_run_ordered(struct walk_worker *w, const void *task, size_t len);
/** Visit operand `root`; *dir is what is to be read, or NULL. */
int walk_look_at_root(struct walk_worker *w, unsigned root,
                      struct poise_walk_dir **dir);

/* ---- pack.c ------------------------------------------------------------- */

/** `stays`: for a checkpoint, the task is run here, too. */
int walk_pack(struct walk *walk, const struct walk_task *task, size_t len,
              bool stays, struct poise_buf *out);
/** Append what makes this directory again, elsewhere: `whole` with its chain of
 * names, else without its ancestors. */
void walk_pack_dir(const struct poise_walk_dir *dir, bool whole,
                   struct poise_buf *out);
/** The reverse, with a reference for the caller; `parent`: what it was packed
 * without. */
int walk_unpack_dir(struct walk *walk, struct poise_reader *in,
                    struct poise_walk_dir *parent, struct poise_walk_dir **out);
int walk_unpack(struct walk *walk, const void *packed, size_t len,
                struct poise_buf *out);
void walk_unpack_finish(struct walk *walk);

/* ---- leave.c ------------------------------------------------------------ */

/** One thing less to do below `dir`; calls leave where nothing is left. */
int walk_leave_done(struct walk_worker *w, struct poise_walk_dir *dir);
/** Call leave for a directory that is not entered. */
int walk_leave_unentered(struct walk_view *view);
/** Say who waits for the end of a task of `dir` that is being packed, and count
 * it there. `stays`: as for walk_pack. */
int walk_leave_ticket(struct walk *walk, struct poise_walk_dir *dir, bool stays,
                      struct walk_ticket *out);
void walk_ticket_write(const struct walk_ticket *ticket, struct poise_buf *out);
/** Of a run with another number of ranks, too. -EBADMSG is recorded. */
int walk_ticket_read(const struct walk *walk, struct poise_reader *in,
                     struct walk_ticket *out);
/** Make an unpacked `dir` answer for the ticket. */
int walk_leave_answer(struct poise_walk_dir *dir,
                      const struct walk_ticket *ticket);
int walk_leave_notified(struct walk_worker *w, const void *data, size_t len);
/** What was away and told walk_leave_notified of its end is no longer away: to
 * be called by commit. */
void walk_leave_commit(struct walk_worker *w);

/* ---- waiting.c ---------------------------------------------------------- */

/** The directory's, made if it has none yet; NULL: no memory. */
struct walk_wait *walk_wait_of(struct poise_walk_dir *dir);
/** One more thing away, or in the snapshot (`stays`), names `dir`: its id, 0 if
 * memory is short. */
uint64_t walk_wait_more(struct walk *walk, struct poise_walk_dir *dir,
                        bool stays);
/** One less. What the table let go of is returned: a reference for the caller
 * to release, or NULL. */
struct poise_walk_dir *walk_wait_less(struct walk *walk,
                                      struct poise_walk_dir *dir);
/** The directory of an id, with a reference for the caller; NULL if no such
 * thing waits here. */
struct poise_walk_dir *walk_wait_find(struct walk *walk, uint64_t id);
/** All that waits, for a checkpoint; what was packed with `stays` is counted,
 * and then forgotten. */
int walk_waiting_save(struct walk *walk, struct poise_buf *out);
int walk_waiting_load(struct walk *walk, struct poise_reader *in);
void walk_waiting_finish(struct walk *walk);

#endif
