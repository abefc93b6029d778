/* What kernels that stand on a search may know of it. */
#ifndef POISE_GRAPH_SEARCH_H
#define POISE_GRAPH_SEARCH_H

#include <poise/bfs.h>

/** The graph that is searched. */
const struct poise_graph *bfs_graph(const struct poise_graph_bfs *bfs);
/** After a run: the tree of all ranks is whole. Collective. */
int bfs_finish_tree(struct poise_graph_bfs *bfs);
/** After bfs_finish_tree: of each of this rank's rows the id of its parent,
 * POISE_GRAPH_NONE where unreached. */
const uint32_t *bfs_parents_by_row(const struct poise_graph_bfs *bfs);

#endif
