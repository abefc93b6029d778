/*
 * Graphs of ranks: one that all know, and those of which each rank knows its
 * own neighbours. Ranks are never reordered. Source: MPI 3.1, 7.5.3 to 7.5.5.
 */
#include "vrank/communicator/topology.h"

#include <stdlib.h>
#include <string.h>

/* ---- a graph that all know ---------------------------------------------- */

/* Whether the arrays describe a graph of `nodes` nodes. */
static bool is_graph(int nodes, const int *index, const int *edges)
{
    int before = 0;

    for (int i = 0; i < nodes; i++) {
        if (index[i] < before) {
            return false;
        }
        before = index[i];
    }
    for (int i = 0; i < before; i++) {
        if (edges[i] < 0 || edges[i] >= nodes) {
            return false;
        }
    }
    return true;
}

static struct vrank_topology *graph_create(int nodes, const int *index,
                                           const int *edges, int rank)
{
    int count = nodes > 0 ? index[nodes - 1] : 0;
    int first = rank > 0 ? index[rank - 1] : 0;
    struct vrank_topology *graph =
        topology_create(MPI_GRAPH, (size_t)nodes + (size_t)count + 1);

    if (graph != NULL) {
        graph->nodes = nodes;
        graph->edge_count = count;
        graph->index = topology_ints(graph, index, nodes);
        graph->edges = topology_ints(graph, edges, count);
        graph->in = graph->out = index[rank] - first;
        graph->sources = graph->destinations = graph->edges + first;
    }
    return graph;
}

int MPI_Graph_create(MPI_Comm comm_old, int nnodes, const int indx[],
                     const int edges[], int reorder, MPI_Comm *comm_graph)
{
    static const char call[] = "MPI_Graph_create";
    struct vrank_mpi *mpi = mpi_enter(call);
    struct poise_mpi_comm *comm = vcomm_of(mpi, comm_old);
    struct vrank_topology *graph = NULL;
    int *members, code = MPI_SUCCESS;

    (void)reorder;
    *comm_graph = MPI_COMM_NULL;
    if (comm == NULL || comm->remote != NULL) {
        return mpi_fail(mpi, comm, MPI_ERR_COMM, NULL);
    }
    if (nnodes < 0 || nnodes > comm->size || !is_graph(nnodes, indx, edges)) {
        return mpi_fail(mpi, comm, MPI_ERR_ARG, NULL);
    }
    members = poise_alloc((size_t)nnodes + 1, sizeof(int));
    if (comm->rank < nnodes) {
        graph = graph_create(nnodes, indx, edges, comm->rank);
        code = graph == NULL ? MPI_ERR_NO_MEM : MPI_SUCCESS;
    }
    if (members == NULL || code != MPI_SUCCESS) {
        free(members);
        free(graph);
        return mpi_fail(mpi, comm, MPI_ERR_NO_MEM, NULL);
    }
    for (int i = 0; i < nnodes; i++) {
        members[i] = i;
    }
    code = topology_make(comm, members, nnodes, graph, call, comm_graph);
    free(members);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, comm, code, NULL);
}

int MPI_Graph_map(MPI_Comm handle, int nnodes, const int indx[],
                  const int edges[], int *newrank)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Graph_map");
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle);

    if (comm == NULL) {
        return mpi_fail(mpi, NULL, MPI_ERR_COMM, NULL);
    }
    if (nnodes < 0 || nnodes > comm->size || !is_graph(nnodes, indx, edges)) {
        return mpi_fail(mpi, comm, MPI_ERR_ARG, NULL);
    }
    *newrank = comm->rank < nnodes ? comm->rank : MPI_UNDEFINED;
    return MPI_SUCCESS;
}

int MPI_Graphdims_get(MPI_Comm handle, int *nnodes, int *nedges)
{
    struct poise_mpi_comm *comm;
    int code;
    struct vrank_topology *graph =
        topology_enter("MPI_Graphdims_get", handle, MPI_GRAPH, &comm, &code);

    if (graph == NULL) {
        return code;
    }
    *nnodes = graph->nodes;
    *nedges = graph->edge_count;
    return MPI_SUCCESS;
}

static void copy_ints(int *to, int room, const int *from, int count)
{
    if (from != NULL && to != MPI_UNWEIGHTED) {
        memcpy(to, from, (size_t)(room < count ? room : count) * sizeof(int));
    }
}

int MPI_Graph_get(MPI_Comm handle, int maxindex, int maxedges, int indx[],
                  int edges[])
{
    struct poise_mpi_comm *comm;
    int code;
    struct vrank_topology *graph =
        topology_enter("MPI_Graph_get", handle, MPI_GRAPH, &comm, &code);

    if (graph == NULL) {
        return code;
    }
    copy_ints(indx, maxindex, graph->index, graph->nodes);
    copy_ints(edges, maxedges, graph->edges, graph->edge_count);
    return MPI_SUCCESS;
}

/* The neighbours of a node; NULL after an error. */
static const int *graph_edges(const char *call, MPI_Comm handle, int rank,
                              int *count, int *code)
{
    struct poise_mpi_comm *comm;
    struct vrank_topology *graph =
        topology_enter(call, handle, MPI_GRAPH, &comm, code);
    int first;

    if (graph == NULL) {
        return NULL;
    }
    if (rank < 0 || rank >= graph->nodes) {
        *code = mpi_fail(comm->mpi, comm, MPI_ERR_RANK, NULL);
        return NULL;
    }
    first = rank > 0 ? graph->index[rank - 1] : 0;
    *count = graph->index[rank] - first;
    return graph->edges + first;
}

int MPI_Graph_neighbors_count(MPI_Comm handle, int rank, int *nneighbors)
{
    int code, count;

    if (graph_edges("MPI_Graph_neighbors_count", handle, rank, &count, &code) ==
        NULL) {
        return code;
    }
    *nneighbors = count;
    return MPI_SUCCESS;
}

int MPI_Graph_neighbors(MPI_Comm handle, int rank, int maxneighbors,
                        int neighbors[])
{
    int code, count;
    const int *edges =
        graph_edges("MPI_Graph_neighbors", handle, rank, &count, &code);

    if (edges == NULL) {
        return code;
    }
    copy_ints(neighbors, maxneighbors, edges, count);
    return MPI_SUCCESS;
}

/* ---- each knows its own ------------------------------------------------- */

/* Neighbours of the calling rank, and weights if it is `weighted`: with no
 * neighbours they may be NULL then, too. */
struct arrows {
    bool weighted;
    int in, out;
    const int *sources, *source_weights, *destinations, *destination_weights;
};

static int arrows_make(struct poise_mpi_comm *comm, const struct arrows *arrows,
                       const char *call, MPI_Comm *out)
{
    struct vrank_topology *graph = topology_create(
        MPI_DIST_GRAPH, 2 * ((size_t)arrows->in + (size_t)arrows->out) + 1);
    int *members = poise_alloc((size_t)comm->size, sizeof(int));
    int code;

    if (graph == NULL || members == NULL) {
        free(graph);
        free(members);
        return MPI_ERR_NO_MEM;
    }
    graph->in = arrows->in;
    graph->out = arrows->out;
    graph->sources = topology_ints(graph, arrows->sources, arrows->in);
    graph->destinations =
        topology_ints(graph, arrows->destinations, arrows->out);
    if (arrows->weighted) {
        graph->source_weights =
            topology_ints(graph, arrows->source_weights, arrows->in);
        graph->destination_weights =
            topology_ints(graph, arrows->destination_weights, arrows->out);
    }
    for (int i = 0; i < comm->size; i++) {
        members[i] = i;
    }
    code = topology_make(comm, members, comm->size, graph, call, out);
    free(members);
    return code;
}

static bool are_ranks(const struct poise_mpi_comm *comm, const int *ranks,
                      int count)
{
    for (int i = 0; i < count; i++) {
        if (ranks[i] != MPI_PROC_NULL &&
            (ranks[i] < 0 || ranks[i] >= comm->size)) {
            return false;
        }
    }
    return count >= 0;
}

int MPI_Dist_graph_create_adjacent(MPI_Comm comm_old, int indegree,
                                   const int sources[],
                                   const int sourceweights[], int outdegree,
                                   const int destinations[],
                                   const int destweights[], MPI_Info info,
                                   int reorder, MPI_Comm *comm_dist_graph)
{
    static const char call[] = "MPI_Dist_graph_create_adjacent";
    struct vrank_mpi *mpi = mpi_enter(call);
    struct poise_mpi_comm *comm = vcomm_of(mpi, comm_old);
    struct arrows arrows = {.weighted = sourceweights != MPI_UNWEIGHTED,
                            .in = indegree,
                            .out = outdegree,
                            .sources = sources,
                            .source_weights = sourceweights,
                            .destinations = destinations,
                            .destination_weights = destweights};
    int code;

    (void)info;
    (void)reorder;
    *comm_dist_graph = MPI_COMM_NULL;
    if (comm == NULL || comm->remote != NULL) {
        return mpi_fail(mpi, comm, MPI_ERR_COMM, NULL);
    }
    if (!are_ranks(comm, sources, indegree) ||
        !are_ranks(comm, destinations, outdegree)) {
        return mpi_fail(mpi, comm, MPI_ERR_ARG, NULL);
    }
    code = arrows_make(comm, &arrows, call, comm_dist_graph);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, comm, code, NULL);
}

/* Edges as they go from rank to rank. */
struct edge {
    int from, to, weight;
};

/* The edges of all ranks, in their order; owned by the caller. */
static int edges_gather(MPI_Comm handle, int size, const struct edge *mine,
                        int count, struct edge **out, int *total)
{
    int *lengths = poise_alloc(2 * (size_t)size, sizeof(int));
    int ints = 3 * count, sum = 0, code = MPI_ERR_NO_MEM;
    struct edge *all = NULL;

    if (lengths == NULL) {
        return code;
    }
    code = MPI_Allgather(&ints, 1, MPI_INT, lengths, 1, MPI_INT, handle);
    for (int r = 0; r < size; r++) {
        lengths[size + r] = sum;
        sum += lengths[r];
    }
    if (code == MPI_SUCCESS) {
        all = poise_alloc((size_t)sum + 1, sizeof(int));
        code = all == NULL ? MPI_ERR_NO_MEM
                           : MPI_Allgatherv(mine, ints, MPI_INT, all, lengths,
                                            lengths + size, MPI_INT, handle);
    }
    free(lengths);
    if (code != MPI_SUCCESS) {
        free(all);
        return code;
    }
    *out = all;
    *total = sum / 3;
    return MPI_SUCCESS;
}

/* Of all edges those that begin or end at the calling rank become its graph. */
static int edges_make(struct poise_mpi_comm *comm, const struct edge *all,
                      int count, bool weighted, const char *call, MPI_Comm *out)
{
    int *room = poise_alloc(4 * (size_t)count + 1, sizeof(int));
    int *sources = room, *source_weights = room + count;
    int *destinations = room + 2 * (size_t)count;
    int *destination_weights = room + 3 * (size_t)count;
    struct arrows arrows = {.weighted = weighted,
                            .sources = sources,
                            .source_weights = source_weights,
                            .destinations = destinations,
                            .destination_weights = destination_weights};
    int code;

    if (room == NULL) {
        return MPI_ERR_NO_MEM;
    }
    for (int i = 0; i < count; i++) {
        if (all[i].from == comm->rank) {
            destinations[arrows.out] = all[i].to;
            destination_weights[arrows.out++] = all[i].weight;
        }
        if (all[i].to == comm->rank) {
            sources[arrows.in] = all[i].from;
            source_weights[arrows.in++] = all[i].weight;
        }
    }
    code = arrows_make(comm, &arrows, call, out);
    free(room);
    return code;
}

int MPI_Dist_graph_create(MPI_Comm comm_old, int n, const int sources[],
                          const int degrees[], const int destinations[],
                          const int weights[], MPI_Info info, int reorder,
                          MPI_Comm *comm_dist_graph)
{
    static const char call[] = "MPI_Dist_graph_create";
    struct vrank_mpi *mpi = mpi_enter(call);
    struct poise_mpi_comm *comm = vcomm_of(mpi, comm_old);
    struct edge *mine, *all = NULL;
    int count = 0, total = 0, next = 0, code;

    (void)info;
    (void)reorder;
    *comm_dist_graph = MPI_COMM_NULL;
    if (comm == NULL || comm->remote != NULL) {
        return mpi_fail(mpi, comm, MPI_ERR_COMM, NULL);
    }
    for (int i = 0; i < n; i++) {
        count += degrees[i] < 0 ? 0 : degrees[i];
    }
    if (n < 0 || !are_ranks(comm, sources, n) ||
        !are_ranks(comm, destinations, count)) {
        return mpi_fail(mpi, comm, MPI_ERR_ARG, NULL);
    }
    mine = poise_alloc((size_t)count + 1, sizeof *mine);
    if (mine == NULL) {
        return mpi_fail(mpi, comm, MPI_ERR_NO_MEM, NULL);
    }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < degrees[i]; k++, next++) {
            mine[next] =
                (struct edge){sources[i], destinations[next],
                              weights == MPI_UNWEIGHTED ? 0 : weights[next]};
        }
    }
    code = edges_gather(comm_old, comm->size, mine, count, &all, &total);
    free(mine);
    if (code != MPI_SUCCESS) {
        return code;
    }
    code = edges_make(comm, all, total, weights != MPI_UNWEIGHTED, call,
                      comm_dist_graph);
    free(all);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, comm, code, NULL);
}

int MPI_Dist_graph_neighbors_count(MPI_Comm handle, int *indegree,
                                   int *outdegree, int *weighted)
{
    struct poise_mpi_comm *comm;
    int code;
    struct vrank_topology *graph = topology_enter(
        "MPI_Dist_graph_neighbors_count", handle, MPI_DIST_GRAPH, &comm, &code);

    if (graph == NULL) {
        return code;
    }
    *indegree = graph->in;
    *outdegree = graph->out;
    *weighted = graph->source_weights != NULL;
    return MPI_SUCCESS;
}

int MPI_Dist_graph_neighbors(MPI_Comm handle, int maxindegree, int sources[],
                             int sourceweights[], int maxoutdegree,
                             int destinations[], int destweights[])
{
    struct poise_mpi_comm *comm;
    int code;
    struct vrank_topology *graph = topology_enter(
        "MPI_Dist_graph_neighbors", handle, MPI_DIST_GRAPH, &comm, &code);

    if (graph == NULL) {
        return code;
    }
    if (maxindegree < 0 || maxoutdegree < 0) {
        return mpi_fail(comm->mpi, comm, MPI_ERR_ARG, NULL);
    }
    copy_ints(sources, maxindegree, graph->sources, graph->in);
    copy_ints(sourceweights, maxindegree, graph->source_weights, graph->in);
    copy_ints(destinations, maxoutdegree, graph->destinations, graph->out);
    copy_ints(destweights, maxoutdegree, graph->destination_weights,
              graph->out);
    return MPI_SUCCESS;
}
