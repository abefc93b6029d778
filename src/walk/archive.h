/*
 * poise/archive.h - trees of files into POSIX archives and back, in parallel.
 *
 * An archive is one file OUT, or several parts OUT.0, OUT.1, ..., each a whole
 * archive in the pax format that tar reads, and beside them an index,
 * OUT.index, which says where each member lies and what its bytes hash to.
 * Members are written by all workers at a time: each takes the next range of a
 * part, since the length of a member is known when it is begun. Names of one
 * inode lie in one part, the first of them with the data.
 *
 * Reading needs no index: without one each part is read through by one worker,
 * which leaves extracting to the others. So archives of other programs are
 * read, too: pax, ustar and GNU's format, sparse files among them. Nothing is
 * ever made outside the destination, whatever the archive says: names with ".."
 * are refused, "/" in front is dropped, symbolic links are not followed.
 *
 * docs/formats.md has the bytes. Source: tree-walk I (archiving a tree).
 */
#ifndef POISE_ARCHIVE_H
#define POISE_ARCHIVE_H

#include <poise/entry.h>
#include <poise/find.h>
#include <poise/walk.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { POISE_ARCHIVE_LEVEL = 3 };

/** Over all ranks. */
struct poise_archive_result {
    uint64_t entries;    /**< written, extracted or listed */
    uint64_t data_bytes; /**< of regular files among them, without holes */
    uint64_t skipped;    /**< sockets, which no archive holds */
    uint64_t errors;     /**< what was not, or is not as it should be */
    uint64_t wall_ns;
};

struct poise_archive_options {
    /** Create: roots, pool, one_file_system, max_depth; else pool. No
     * checkpoints: -EINVAL. */
    struct poise_walk_options walk;
    const char *archive; /**< OUT, or IN; not the name of a part of several */
    /** Create: how many parts. 0: one, or one for each rank; fewer than ranks
     * become as many as there are. */
    unsigned parts;
    /** Create: compress by Zstandard, at this level (1 to 19). 0: where the
     * name ends in .zst or .tzst, at POISE_ARCHIVE_LEVEL; negative: do not. */
    int compression;
    struct poise_walk_filter *filter; /**< create: only what it matches, and
                                           directories on the way to it only if
                                           they match. NULL: all. Borrowed */
    const char *destination;          /**< extract: a directory, made if there
                                           is none */
    /** Extract: only members of these names, and what is below them. One that
     * no member has is an error that is told. [name_count] */
    const char *const *names;
    size_t name_count;
    unsigned keep; /**< POISE_WALK_KEEP_*; 0: KEEP_ALL */
    /** FILE: each part and the index, or each extracted file and directory.
     * TREE: all of it at the end, by one sync of the file system. */
    enum poise_sync sync;
    /** What went wrong with one entry or part: one call each. `worker` may be
     * NULL. 0 goes on, negative stops. */
    int (*error)(struct poise_worker *worker, const struct poise_error *err,
                 void *arg);
    /** List: each member, `len` bytes of its name; on rank 0. */
    int (*member)(const char *name, size_t len, void *arg);
    void (*progress)(const struct poise_pool_stats *stats, void *arg);
    void *arg;
};

/**
 * Write the archive of walk.roots. Its files appear when all is in them, or not
 * at all. Names are those of find, without "/" and up to the last "../" in
 * front. A file that changes while it is read is read again, then reported; one
 * that becomes shorter is filled up with zeros. Collective; returns on all
 * ranks alike: 0 (also if some entries could not be read: see
 * result->errors), -EINTR, or the error that ended it.
 *
 * Memory: the pool's; 4 MiB for each worker at most. What grows with the tree
 * lies in files without names in $TMPDIR: 100 bytes and the name of each entry,
 * and of each inode with several names.
 */
POISE_API int poise_archive_create(struct poise_world *world,
                                   const struct poise_archive_options *options,
                                   struct poise_archive_result *result);

/**
 * Extract all members below options->destination. Files appear whole; links
 * are made after them, attributes of directories at the end. What is damaged or
 * cut short is reported, the rest extracted. Collective; return codes as above.
 *
 * Memory: the pool's; names of directories that no member is for; 32 bytes for
 * each directory that bars its owner. Places of directories and links lie in
 * files without names in $TMPDIR.
 */
POISE_API int poise_archive_extract(struct poise_world *world,
                                    const struct poise_archive_options *options,
                                    struct poise_archive_result *result);

/** Call options->member for each, part by part in the order in which they lie
 * there. Local. */
POISE_API int poise_archive_list(const struct poise_archive_options *options,
                                 struct poise_archive_result *result);

#ifdef __cplusplus
}
#endif

#endif
