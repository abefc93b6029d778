/*
 * Shared inside the room that copies trees.
 *
 * run.c (a whole copy) -> plan.c (where each source goes, and whether it may),
 * visit.c (the walk's hooks) -> file.c (regular files), links.c (files with
 * several names), taken.c (what is in the way), extras.c (what is at the target
 * only), pace.c (limits). place.c: where an entry goes;
 * undone.c: what an interrupted one left to do.
 */
#ifndef WALK_COPY_INTERNAL_H
#define WALK_COPY_INTERNAL_H

#include <poise/copy.h>
#include <poise/core.h>
#include <poise/remove.h>

#include "walk/engine/engine.h"
#include "walk/entry/entry.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>

enum {
    COPY_CHUNK_BYTES = 16 << 20,
    COPY_METADATA_CALLS = 6, /* of an entry that is no regular file */
    COPY_TAG_SHIFT = 40,     /* tags of directories: behind it the rank */
};
/* Of a tag: parts of large files are left in it, to be gone on with. */
#define COPY_TAG_LEFT (UINT64_C(1) << 63)

/* ---- plan.c ------------------------------------------------------------- */

/** Where the sources go. The same on all ranks. */
struct copy_plan {
    size_t count;
    char **targets; /* [count]: as they are called in the end */
    char **places;  /* [count]: as they are called meanwhile; of an atomic copy
                       others than the targets */
    char *home;     /* a directory, or what becomes one, of the target's file
                       system, for the folder of links */
    uint64_t id;    /* of this copy */
};
/** Collective: rank 0 decides. */
int copy_plan(struct poise_world *world,
              const struct poise_copy_options *options, struct copy_plan *plan);
void copy_plan_free(struct copy_plan *plan);

/* ---- pace.c ------------------------------------------------------------- */

struct copy_pace {
    pthread_mutex_t lock;
    uint64_t bytes_per_s, calls_per_s;
    uint64_t bytes_at_ns, calls_at_ns; /* until when they are paid */
    const volatile int *interrupt;
};
/** A hook of struct entry_copy_options; `arg` is a struct copy_pace. */
void copy_pace(uint64_t bytes, unsigned calls, void *arg);

/* ---- one run ------------------------------------------------------------ */

struct copy;

struct copy_worker {
    struct copy *copy;
    struct entry_copier copier;
    /* bytes, resumed_bytes and files: __atomic stores */
    struct poise_copy_counts counts;
    uint64_t found_bytes; /* the same: of files that are to be copied */
    struct poise_buf memory, path;
    struct poise_walk_entry *entry; /* in hand, for those who are asked */
    int parent_fd;                  /* of a root's place; -1: none is open */
    bool left;                      /* copy_extras met parts of large files */
} __attribute__((aligned(128)));

struct copy {
    const struct poise_copy_options *options;
    struct poise_world *world;
    int rank, size;
    struct copy_plan plan;
    unsigned keep;
    struct copy_pace pace;
    struct walk_spaces workers; /* of struct copy_worker */
    /* links.c, all under the lock */
    pthread_mutex_t lock;
    int links_fd;         /* the folder of links; -1: not opened */
    int deferred_fd;      /* names that are linked after the walk; -1: none */
    uint64_t deferred_at; /* of that file: so far they are linked */
    uint64_t tags;        /* __atomic: given to directories so far */
    struct poise_buf deferred;     /* not yet in that file */
    struct poise_copy_counts late; /* after the walk */
    char *refused;                 /* an example */
    struct poise_buf messages;     /* blobs: the first errors, */
    unsigned message_count;        /* so many */
    /* samples, by the thread of `progress` */
    struct poise_copy_sample samples[POISE_COPY_SAMPLES];
    size_t sample_count;
    uint64_t sample_every_ns;
};

/** This worker's own; NULL: no memory. */
struct copy_worker *copy_worker(struct copy *copy, struct poise_worker *worker);
/** Say what happened to the entry's target, if anybody asks. `name`: of what
 * is in the directory that the entry becomes; NULL: the entry itself. */
int copy_say(struct copy_worker *w, enum poise_copy_action action,
             const struct poise_walk_entry *entry, const char *name);
/** Note what could not be kept. */
void copy_refused(struct copy_worker *w, const struct poise_walk_entry *entry,
                  unsigned refused);
/** A directory was made. */
static inline void copy_count_directory(struct copy_worker *w)
{
    w->counts.directories++;
}
/** The last error is about the entry, or about what is in the directory that
 * it becomes, and has no more than its name: it gets its path, at the source or
 * at the target. */
void copy_name_error(struct copy_worker *w,
                     const struct poise_walk_entry *entry);
/** An entry failed, its error is recorded: count and report it (but not where
 * the code is -ECANCELED). 0, or the error if all that follows would fail as
 * well. */
int copy_failed(struct copy_worker *w, const struct poise_walk_entry *entry,
                int code);

/** An error: keep its text, and tell the user. As hook error. */
int copy_report(struct poise_worker *worker, const struct poise_error *err,
                void *arg);

/* ---- undone.c ----------------------------------------------------------- */

/** After a walk that ended early: fill result->undone. Collective. */
int copy_undone(struct copy *copy, struct poise_copy_result *result);

/* ---- visit.c ------------------------------------------------------------ */

int copy_visit(struct poise_walk_entry *entry, void *arg);
int copy_leave(struct poise_walk_entry *entry, void *arg);

/* ---- place.c ------------------------------------------------------------ */

/** Where an entry goes: `name` in the directory `fd`. */
struct copy_place {
    int fd;
    const char *name;
};
/** Find it. -ENOENT: the directory is not there (yet); not recorded.
 * -ECANCELED: counted and reported already. Until copy_place_end. */
int copy_place(struct copy_worker *w, const struct poise_walk_entry *entry,
               struct copy_place *out);
void copy_place_end(struct copy_worker *w);
/** Append the entry's path below its root: nothing, if it is one. */
int copy_relative_path(const struct copy *copy,
                       const struct poise_walk_entry *entry,
                       struct poise_buf *out);
/** Append the path that the entry's target has in the end. */
int copy_place_path(const struct copy *copy,
                    const struct poise_walk_entry *entry,
                    struct poise_buf *out);
/** Make the directories above the entry that are not there yet: of a filter,
 * which lets files through and not the directories in which they lie. They are
 * marked, for copy_place_was_made. */
int copy_place_make(struct copy_worker *w,
                    const struct poise_walk_entry *entry);
/** During leave of a directory: whether copy_place_make made it. Tells the
 * directory above what of those above it was made. */
bool copy_place_was_made(const struct poise_walk_entry *entry);
/** Whether a copy made this directory so, and ended before it was whole. */
bool copy_place_is_begun(const struct copy_place *place);
/** Open a directory by a path of any length below `fd`, following no symbolic
 * link. Negative errno, not recorded. */
int copy_open_below(int fd, const char *path, size_t len);

/* ---- file.c ------------------------------------------------------------- */

/** A regular file; 0, or what ends the walk. */
int copy_file(struct copy_worker *w, struct poise_walk_entry *entry,
              const struct copy_place *place);
int copy_chunk(struct poise_walk_entry *entry, uint64_t offset, uint64_t length,
               void *arg);
/** All of its chunks are there. */
int copy_chunks_leave(struct copy_worker *w, struct poise_walk_entry *entry);
/** Whether what is there is as good as `stx`, so that it can stay. */
bool copy_is_done(const struct copy *copy, const struct statx *stx,
                  const struct stat *there);

/* ---- taken.c ------------------------------------------------------------ */

/** Whom the entry functions ask about what is in the way; `arg` of `ask` is
 * the worker. */
int copy_ask(int dirfd, const char *name, const struct stat *there, void *arg);
/** Whether `there`, found under the target's name, is something else's, of a
 * name that differs by its case only, and which is also among the sources:
 * -EEXIST, recorded; else 0. */
int copy_clash(struct copy_worker *w, int dirfd, const char *name,
               const struct stat *there);

/* ---- links.c ------------------------------------------------------------ */

enum copy_link {
    COPY_LINK_DONE,  /* it is a further name of a copy now */
    COPY_LINK_FIRST, /* nobody has copied it: do so, and then copy_link_add */
    COPY_LINK_LATER, /* somebody is about it: noted */
};
/** The entry has several names: what is to be done with it; or the error. */
int copy_link(struct copy_worker *w, struct poise_walk_entry *entry,
              const struct copy_place *place, const struct statx *stx);
/** Its copy is whole at this place: others can be linked to it. */
int copy_link_add(struct copy_worker *w, const struct copy_place *place,
                  const struct statx *stx);
/** A name that was met while its file was being copied. */
struct copy_note {
    uint64_t root;
    char *link; /* the folder's name of the file */
    char *path; /* below the root; "": it is the root */
};
/** The names that this rank noted and did not link yet, in turn: until `each`
 * says other than 0, which is returned, or an error. Local. */
int copy_links_each(struct copy *copy,
                    int (*each)(struct copy *copy, const struct copy_note *note,
                                void *arg),
                    void *arg);
/** After the walk: link what was noted, if the walk came to its end (`whole`),
 * and remove the folder. Collective; agrees on the code. */
int copy_links_finish(struct copy *copy, bool whole);
/** The name of the folder of links, in plan.home. */
void copy_links_name(const struct copy *copy, char out[40]);

/* ---- extras.c ----------------------------------------------------------- */

/** The target of the directory `entry` is there: remove what killed copies left
 * in it, and what the source lacks, as the options say. Parts of large files
 * stay until it is known whether they are gone on with: w->left. */
int copy_extras(struct copy_worker *w, struct poise_walk_entry *entry,
                const struct copy_place *place);
/** All that was to be made in the directory at this place is: remove what is
 * left of large files that nobody went on with. */
int copy_extras_left(struct copy_worker *w, struct poise_walk_entry *entry,
                     const struct copy_place *place);
/** Remove folders of links that killed copies left in plan.home. */
void copy_extras_home(struct copy *copy);

#endif
