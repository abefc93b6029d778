/* What the files that make one entry whole share. */
#ifndef WALK_ENTRY_INTERNAL_H
#define WALK_ENTRY_INTERNAL_H

#include <poise/core.h>

#include "walk/entry/entry.h"

/** Give what `name` is (or `fd`, if that is not -1) the attributes of `meta`
 * where they differ from what it has: 1 if anything was changed. `refused`
 * (NULL: nobody asks) receives, by bitwise or, the POISE_WALK_KEEP_* that the
 * process may not give, or the file system does not keep: without it an owner
 * is passed over silently, extended attributes are an error. */
int make_attributes(int dirfd, const char *name, int fd,
                    const struct poise_walk_meta *meta, unsigned keep,
                    unsigned *refused);
/** The same for the regular file `fd`, which this thread made just now with
 * mode `asked`; what it had from birth is remembered in `copier`. */
int make_attributes_new(struct entry_copier *copier, const char *name, int fd,
                        mode_t asked, const struct poise_walk_meta *meta,
                        unsigned *refused);

/** From its temporary name to its own, whatever is there: a whole directory if
 * `replace`, else -EISDIR if it is not empty. Whatever fails leaves what was
 * there. */
int make_in_place(int dirfd, const char *temporary, const char *name,
                  bool replace);

/** A name for something temporary, which nothing has. */
void make_name(char out[40]);
/** The same as make_in_place, but asks first if something has the name. The
 * temporary one is left where that fails. */
int make_placed(int dirfd, const char *temporary, const char *name,
                const struct entry_taken *taken, bool *replaced);

/* ---- copy_data.c ----------------------------------------------------------
 */

/** Two open files, and what is to be moved from one to the other: bytes
 * [from, to), in both at the same place. */
struct copy_move {
    int in, out;
    const char *name; /* of both, for errors */
    uint64_t from, to;
    bool sparse;
};
/** Move them; what is a hole stays none of `out`'s data. Ends early where the
 * source ends. */
int copy_move(struct entry_copier *copier, const struct copy_move *move,
              struct entry_copied *copied);
/** What is known of one file system may not hold for the next: to be called
 * with each source before the two functions around. */
void copy_see_source(struct entry_copier *copier, const struct statx *stx);
/** Make all of `out` a clone of `in`: 1, or 0 if it cannot be one. */
int copy_clone(struct entry_copier *copier, int in, int out, uint64_t size);

#endif
