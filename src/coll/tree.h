/*
 * poise/tree.h - spanning trees over ranks: generated, read from files,
 * written.
 *
 * A tree says which rank joins which. The values of a rank and of those that
 * join it are combined there, in shared memory where they are on one node, by
 * messages else. Several roots are joined all to all (MagPIe), so that a
 * value crosses a wide-area link once. A tree file is described in
 * docs/formats.md.
 *
 * Source: thesis 7.1, 7.3 (PATHS, spanning trees), MagPIe.
 */
#ifndef POISE_TREE_H
#define POISE_TREE_H

#include <poise/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_coll_tree;

/**
 * Generate a tree from what the world knows about entries. `shape` is one of
 *     flat, binary, kary:K, binomial      over all ranks
 *     node[:SHAPE]    ranks join their node's lowest, those by SHAPE
 *     site[:SHAPE]    the same in each site; site roots join the first
 *     magpie[:SHAPE]  the same, but the site roots are joined all to all
 * (SHAPE is one of the first line, default binomial), or "default": magpie on
 * several sites, else node. Local. Owned by the caller. -EINVAL.
 */
POISE_API int poise_coll_tree_make(const struct poise_world *world,
                                   const char *shape,
                                   struct poise_coll_tree **out);
/** The same for `size` ranks of which all that is known is where they are. */
POISE_API int poise_coll_tree_shape(const struct poise_placement *places,
                                    int size, const char *shape,
                                    struct poise_coll_tree **out);
/**
 * Read a tree file on rank 0, and check it on every rank. Collective; agrees.
 * -EINVAL names the line: syntax, unknown rank or host, a cycle, a rank that
 * joins nobody, shared memory between nodes.
 */
POISE_API int poise_coll_tree_read(struct poise_world *world, const char *path,
                                   struct poise_coll_tree **out);
/** Read a tree file that names no hosts, alone, for `size` ranks; whether ranks
 * share a node is not looked at. Local. Owned by the caller. -EINVAL as above;
 * errors of open and read. */
POISE_API int poise_coll_tree_load(const char *path, int size,
                                   struct poise_coll_tree **out);
/** A tree in which rank r joins parents[r]; -1: it is a root. Local. Owned by
 * the caller. -EINVAL: a circle, no root, an unknown rank. */
POISE_API int poise_coll_tree_of_parents(const int *parents, int size,
                                         struct poise_coll_tree **out);
/** As a tree file. */
POISE_API int poise_coll_tree_write(const struct poise_coll_tree *tree,
                                    struct poise_buf *out);
POISE_API void poise_coll_tree_free(struct poise_coll_tree *tree);
/** Whom a rank joins; -1: nobody, it is a root. */
POISE_API int poise_coll_tree_parent(const struct poise_coll_tree *tree,
                                     int rank);

#ifdef __cplusplus
}
#endif

#endif
