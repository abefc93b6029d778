/*
 * Shared inside room coll/tree.
 */
#ifndef POISE_COLL_TREE_INTERNAL_H
#define POISE_COLL_TREE_INTERNAL_H

#include <poise/core.h>

#include "coll/tree/plan.h"

/* `hosts[r]` is rank r's; NULL: no host lines. `name` is the file's. */
int coll_tree_parse(const char *text, size_t len, const char *name,
                    const char *const *hosts, int size,
                    struct poise_coll_tree **out);

#endif
