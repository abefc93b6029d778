/* What the files that make one entry whole share. */
#ifndef WALK_ENTRY_INTERNAL_H
#define WALK_ENTRY_INTERNAL_H

#include <poise/entry.h>

/** Give what `name` is (or `fd`, if that is not -1) the attributes of `meta`
 * where they differ from what it has: 1 if anything was changed. `refused`
 * (NULL: nobody asks) receives, by bitwise or, the POISE_WALK_KEEP_* that the
 * process may not give, or the file system does not keep: without it an owner
 * is passed over silently, extended attributes are an error. */
int make_attributes(int dirfd, const char *name, int fd,
                    const struct poise_walk_meta *meta, unsigned keep,
                    unsigned *refused);
/** The metadata of what is open as `fd`, of which statx said `stx`; with xattrs
 * if `keep` says so. `memory` is reset before. */
int make_meta_of(int fd, const char *name, const struct statx *stx,
                 unsigned keep, struct poise_walk_meta *meta,
                 struct poise_buf *memory);

/** From its temporary name to its own, whatever is there: a whole directory if
 * `replace`, else -EISDIR if it is not empty. Whatever fails leaves what was
 * there. */
int make_in_place(int dirfd, const char *temporary, const char *name,
                  bool replace);

#endif
