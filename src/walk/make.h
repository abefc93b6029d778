/*
 * poise/make.h - make one entry of a directory whole.
 *
 * What an entry is, apart from its name and its data, is struct
 * poise_walk_meta. An entry is made from that and, if it is a regular file,
 * from data that come from anywhere: a wire, another file, a reflink. It is
 * made beside its place under a temporary name, gets its attributes, times
 * last, and appears under its own name by a rename: a reader sees what was
 * there before, or all of the new entry. Links are never followed.
 *
 * Names are of one component, relative to a descriptor of their directory.
 * All functions are local and safe in any thread; of two that make the same
 * name at a time, the entry of one remains.
 */
#ifndef POISE_MAKE_H
#define POISE_MAKE_H

#include <poise/entry.h>

#include <sys/stat.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_walk_meta {
    uint32_t mode; /**< type and permissions, as st_mode */
    uint32_t uid, gid;
    uint32_t major, minor; /**< devices */
    uint64_t size;         /**< regular files: how long they become */
    struct timespec mtime, atime;
    bool sparse;        /**< regular files: has holes; long zeros become some */
    const char *target; /**< symbolic links; borrowed */
    const void *xattrs; /**< (name, value) as poise_buf_blob wrote them, in the
                             order of names; borrowed */
    size_t xattrs_len;
    /* Set by poise_walk_meta_get; not used to make an entry. */
    uint64_t dev, ino;
    uint32_t links;
};

/** What is done under each policy, at each of the three moments: a file is
 * complete, but has not its name yet; all is in a directory; all is done below
 * the directory `fd` (any of its file system). `name` is for the error. */
enum poise_sync_moment {
    POISE_SYNC_AT_FILE,
    POISE_SYNC_AT_DIRECTORY,
    POISE_SYNC_AT_END,
};
int poise_walk_sync(enum poise_sync policy, enum poise_sync_moment moment,
                    int fd, const char *name);

/** The metadata of an entry, links not followed; with xattrs if `keep` says
 * so. Strings are appended to `memory`, which is reset before. Where the file
 * system has no xattrs there are none. */
int poise_walk_meta_get(int dirfd, const char *name, unsigned keep,
                        struct poise_walk_meta *meta, struct poise_buf *memory);

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

/** Names of temporary files begin so; 16 hexadecimal digits follow. */
#define POISE_WALK_TEMPORARY ".poise-making-"
bool poise_walk_is_temporary(const char *name);
/** Remove a temporary entry that a killed process left: 1; 0 if `name` is none,
 * or somebody may be making it still. Whoever makes a file holds a lock on it
 * (flock) until it has its name; where files cannot be locked, and for what is
 * no regular file, it has to have been left alone for a day. */
int poise_walk_remove_leftover(int dirfd, const char *name);

/** Begin a file. `sparse`: zeros become holes. */
int poise_walk_make_begin(struct poise_walk_making *making, int dirfd,
                          const char *name, bool sparse);
/** The same for one whose mode is not kept: it becomes that of the file which
 * has the name, or else what the umask, or the directory's default access
 * list, leaves of `mode`, as for every program that makes a file. */
int poise_walk_make_begin_plain(struct poise_walk_making *making, int dirfd,
                                const char *name, mode_t mode, bool sparse);
/** The next bytes. */
int poise_walk_make_data(struct poise_walk_making *making, const void *data,
                         size_t len);
/** The next bytes are a hole. */
int poise_walk_make_hole(struct poise_walk_making *making, uint64_t len);
/** Give it its length, its attributes and its name. `replace`: a whole
 * directory that has the name goes; else -EISDIR if it is not empty. Whatever
 * happens the making is over, and nothing temporary is left. */
int poise_walk_make_commit(struct poise_walk_making *making,
                           const struct poise_walk_meta *meta, unsigned keep,
                           bool replace);
/** Give up; also where none is being made. */
void poise_walk_make_abort(struct poise_walk_making *making);

/** Make a symbolic link, pipe, socket or device, in the same way. */
int poise_walk_make_special(int dirfd, const char *name,
                            const struct poise_walk_meta *meta, unsigned keep,
                            bool replace);
/** Make `name` a hard link to an entry that is there: 1; 0 if it was one. */
int poise_walk_make_link(int from_dirfd, const char *from, int dirfd,
                         const char *name, bool replace);
/** Make a directory of this mode (0700 if it is to be given another one later;
 * less the umask): 1; 0 if there was one, which its owner may now change. What
 * else has the name goes. Its attributes belong to it when all is in it:
 * poise_walk_make_attributes. */
int poise_walk_make_directory(int dirfd, const char *name, mode_t mode);
/** Give an entry that is there the attributes of `meta`, where they differ:
 * 1; 0 if there was nothing to change. */
int poise_walk_make_attributes(int dirfd, const char *name,
                               const struct poise_walk_meta *meta,
                               unsigned keep);

#ifdef __cplusplus
}
#endif

#endif
