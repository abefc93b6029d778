/*
 * What rooms that copy trees may know of making one regular file from another.
 *
 * The new file has no name while it is made (O_TMPFILE), where the file system
 * knows such files: a kill leaves nothing. It gets its name by one link, or,
 * where something has the name, by a link and a rename. Else, and where several
 * processes write to it, it has a temporary name. Data go as a clone (FICLONE),
 * else inside the kernel (copy_file_range), else through a buffer; small files
 * through the buffer, which is the fewest system calls. Holes stay holes.
 *
 * The source is looked at before and after it is read. Its status change time
 * tells whether it was written to meanwhile: a file that changed in the very
 * tick of the kernel's clock in which it is first looked at is waited for, and
 * so is a write that goes on. (Unseen are writes through a shared mapping that
 * was dirty before, and those past the page cache.)
 *
 * All functions: any thread, one entry_copier each; names are of one component,
 * relative to a descriptor; the errors are recorded.
 */
#ifndef WALK_ENTRY_H
#define WALK_ENTRY_H

#include <poise/make.h>

#include <limits.h>

/** Asked when something has the name already (`there` is what lstat says of
 * it): 0: it goes, unless it is a directory, which is -EISDIR; 1: it goes with
 * all that is in it; negative: nothing is made, and this is the answer, whether
 * it is recorded or not; 2: it goes if it is no directory, or an empty one.
 * `ask` NULL: 0. */
struct entry_taken {
    int (*ask)(int dirfd, const char *name, const struct stat *there,
               void *arg);
    void *arg;
};

struct entry_copy_options {
    unsigned keep; /**< POISE_WALK_KEEP_* */
    enum poise_sync sync;
    bool verify; /**< read back from the disk and compare hashes */
    bool direct; /**< make files under their names: nobody sees the folder
                      in which all this is yet */
    /** Called before `bytes` are moved by `calls` system calls that a server
     * sees; waits if that is too fast. NULL: no limits. */
    void (*pace)(uint64_t bytes, unsigned calls, void *arg);
    void *arg;
};

/** What a new file has from birth in one directory. */
struct entry_birth {
    uint64_t place; /**< entry_copier.place; 0: nothing is known */
    mode_t asked;   /**< for a file that was made with this mode: */
    mode_t mode;
    uid_t uid;
    gid_t gid;
    bool plain; /**< without extended attributes: it inherits no access list */
};

/** What one thread needs; zero but for `options` to begin with. What the file
 * systems turned out not to know is remembered and not tried again. */
struct entry_copier {
    struct entry_copy_options options;
    char *buffer;
    struct poise_buf xattrs;
    /** Names the directory in which files are made, the same for no other: the
     * second one need not be asked what it was born with. 0: ask each. */
    uint64_t place;
    struct entry_birth birth;
    uint64_t dev; /**< of the source for which the next two hold */
    bool no_clone, no_range;
    bool only_clone; /**< of entry_clone */
    bool no_nameless, no_empty_path;
};
void entry_copier_free(struct entry_copier *copier);

/** A regular file that is copied; fd is -1 if it is none. */
struct entry_source {
    int fd;
    const char *name; /**< borrowed */
    struct statx stx;
    bool unsettled; /**< it is written to all the time: no moment was found
                         without */
};

/** What happened; added to. */
struct entry_copied {
    uint64_t bytes;   /**< of data that were moved, or cloned */
    uint64_t cloned;  /**< of these */
    uint64_t resumed; /**< bytes that an interrupted copy had left */
    unsigned retries; /**< how often the source changed while it was read */
    unsigned refused; /**< POISE_WALK_KEEP_* that could not be given */
    bool replaced;    /**< something had the name */
};

/** Open and look at it. -ENXIO, not recorded: it is no regular file now. */
int entry_source_open(int dirfd, const char *name, struct entry_source *source);
void entry_source_close(struct entry_source *source);
/** Whether it is as it was when it was opened, or looked at again: 0 it is, and
 * `stx` is as of now; 1 it changed, and is looked at again. */
int entry_source_check(struct entry_source *source);

/** Make `name` a copy. A source that changes meanwhile is read again, up to
 * three times in all, then it is -EBUSY. */
int entry_copy(struct entry_copier *copier, struct entry_source *source,
               int dirfd, const char *name, const struct entry_taken *taken,
               struct entry_copied *copied);

/** The same, but only if all data can be shared with the source: 1, or 0: they
 * cannot, and nothing was made. Found out once for each file system. */
int entry_clone(struct entry_copier *copier, struct entry_source *source,
                int dirfd, const char *name, const struct entry_taken *taken,
                struct entry_copied *copied);

/** The metadata of what is open as `fd`, of which statx said `stx`; with xattrs
 * if `keep` says so. `memory` is reset before. */
int entry_meta_of(int fd, const char *name, const struct statx *stx,
                  unsigned keep, struct poise_walk_meta *meta,
                  struct poise_buf *memory);

/* ---- from data of any origin --------------------------------------------- */

/** A regular file in the making, as entry_copy makes one: of one thread, but
 * that several may write to `fd`. The fields are not for the caller to change.
 */
struct entry_target {
    int fd, dirfd;      /**< dirfd: borrowed */
    const char *name;   /**< borrowed */
    char temporary[40]; /**< "": it has none */
    bool has_name;      /**< its own */
    mode_t asked;       /**< with which it was made */
};
/** Begin it. It is empty; its data are put into target->fd. */
int entry_target_open(struct entry_copier *copier, int dirfd, const char *name,
                      const struct poise_walk_meta *meta,
                      struct entry_target *target);
/** Give it its attributes and its name (its length is the caller's). Whatever
 * happens the making is over, and nothing temporary is left. */
int entry_target_commit(struct entry_copier *copier,
                        struct entry_target *target,
                        const struct poise_walk_meta *meta,
                        const struct entry_taken *taken,
                        struct entry_copied *copied);
/** Give up; also after the end. */
void entry_target_drop(struct entry_target *target);

/* ---- by several at a time ------------------------------------------------ */

/** A file that is made in chunks. */
struct entry_chunks {
    int dirfd;
    const char *temporary; /**< the name that it has meanwhile. Borrowed */
    uint64_t tag;          /**< tells its source, as it is now, from others */
    uint64_t bytes;        /**< of a chunk; the last one may be shorter */
};
/** Make the file for the chunks. One that is there is gone on with if `resume`,
 * and it is one of such chunks of the same source; else it is removed. */
int entry_chunks_begin(const struct entry_source *source,
                       const struct entry_chunks *chunks, bool resume);
/** Copy [offset, offset + length), one chunk, into it, if it is not there yet
 * (to be verified it is copied again). */
int entry_chunk(struct entry_copier *copier, const struct entry_source *source,
                const struct entry_chunks *chunks, uint64_t offset,
                uint64_t length, struct entry_copied *copied);
/** Give it its attributes and its name. Whatever happens, the temporary name
 * is gone. */
int entry_chunks_commit(struct entry_copier *copier,
                        const struct entry_source *source,
                        const struct entry_chunks *chunks, const char *name,
                        const struct entry_taken *taken,
                        struct entry_copied *copied);
/** Whether this is such a file that is not whole. */
bool entry_chunks_is_left(int dirfd, const char *name);
/** Whether the file system of this directory lets one at a time write to a
 * file, so that others would only wait. */
bool entry_is_one_writer(int dirfd);

/* ---- names that are one -------------------------------------------------- */

/** Whether the directory ignores the case of letters, and lists what `name`
 * leads to (`ino`: its inode) in another spelling: that is in `out`. */
bool entry_other_spelling(int dirfd, const char *name, uint64_t ino,
                          char out[NAME_MAX + 1]);
/** Whether `name`, which is there, shows that the case of its letters matters:
 * it is not there with all of them the other way round. */
bool entry_is_only_spelling(int dirfd, const char *name);

/* ---- the rest ------------------------------------------------------------ */

/** poise_walk_make_special and poise_walk_make_attributes, with what was
 * refused. */
int entry_make_special(int dirfd, const char *name,
                       const struct poise_walk_meta *meta, unsigned keep,
                       const struct entry_taken *taken, unsigned *refused);
int entry_make_attributes(int dirfd, const char *name,
                          const struct poise_walk_meta *meta, unsigned keep,
                          unsigned *refused);
/** Make `name` a hard link to `from`: 1, or 0 if it was one. -ENOENT, not
 * recorded: there is no `from`. */
int entry_make_link(int from_dirfd, const char *from, int dirfd,
                    const char *name, const struct entry_taken *taken);

#endif
