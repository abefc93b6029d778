/* What the files that make one entry whole share. */
#ifndef WALK_ENTRY_INTERNAL_H
#define WALK_ENTRY_INTERNAL_H

#include <poise/entry.h>

/** Give what `name` is (or `fd`, if that is not -1) the attributes of `meta`
 * where they differ from what it has: 1 if anything was changed. */
int make_attributes(int dirfd, const char *name, int fd,
                    const struct poise_walk_meta *meta, unsigned keep);

/** From its temporary name to its own, whatever is there: a whole directory if
 * `replace`, else -EISDIR if it is not empty. Whatever fails leaves what was
 * there. */
int make_in_place(int dirfd, const char *temporary, const char *name,
                  bool replace);

#endif
