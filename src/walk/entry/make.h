/*
 * make.h - how the parts of "making one entry whole" meet; of the room walk,
 * for make.c, make_meta.c and remove.c only.
 */
#ifndef POISE_WALK_MAKE_H
#define POISE_WALK_MAKE_H

#include "walk/internal.h"

/** Give what `name` is (or `fd`, if that is not -1) the attributes of `meta`
 * where they differ from what it has: 1 if anything was changed. */
int make_attributes(int dirfd, const char *name, int fd,
                    const struct poise_walk_meta *meta, unsigned keep);

#endif
