/*
 * How the ranks of a communicator are laid out: as a grid or a graph, which
 * gives each rank its neighbours.
 */
#ifndef POISE_VRANK_TOPOLOGY_H
#define POISE_VRANK_TOPOLOGY_H

#include "communicator.h"

struct vrank_topology {
    struct vcomm_topology head; /* first: mpi.h knows it as that */
    int kind;                   /* MPI_CART, MPI_GRAPH, MPI_DIST_GRAPH */

    /* A grid. */
    int ndims;
    int *dims, *periods, *coords; /* [ndims]; coords: mine */

    /* A graph that all know: edges[index[i - 1]..index[i]) are node i's. */
    int nodes, edge_count;
    int *index, *edges;

    /* The ranks that the calling one receives from and sends to, in order. In a
     * grid, and in a graph that all know, both are the same. MPI_PROC_NULL:
     * none. */
    int in, out;
    int *sources, *destinations;
    int *source_weights, *destination_weights; /* NULL: none */

    size_t int_count;
    int ints[]; /* what the pointers above lead to */
};

/** The topology of a communicator; NULL: none. */
static inline struct vrank_topology *
topology_of(const struct poise_mpi_comm *comm)
{
    return (struct vrank_topology *)(void *)comm->topology;
}

/** One with room for so many integers; free it with head.free. NULL: no
 * memory. */
struct vrank_topology *topology_create(int kind, size_t ints);
/** The next `count` of its integers, copied from `values` unless NULL. */
int *topology_ints(struct vrank_topology *topology, const int *values,
                   int count);

/**
 * A communicator of those members of `comm`, `members` of `count` by rank in
 * it, with a topology, which is taken over, also on failure; ranks that are
 * not among the members pass NULL. Collective.
 */
int topology_make(struct poise_mpi_comm *comm, const int *members, int count,
                  struct vrank_topology *topology, const char *call,
                  MPI_Comm *out);

/** At the beginning of a function: the communicator, and its topology if it
 * has one of that kind. Otherwise the error was handled, and NULL. */
struct vrank_topology *topology_enter(const char *call, MPI_Comm handle,
                                      int kind, struct poise_mpi_comm **comm,
                                      int *code);

#endif /* POISE_VRANK_TOPOLOGY_H */
