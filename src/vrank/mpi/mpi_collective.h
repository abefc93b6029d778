/*
 * poise/vmpi/mpi_collective.h - the part of mpi_functions.h with collectives
 * and the topologies that some of them need (chapters 5 and 7 of MPI 3.1).
 */

/* Collective communication. */
POISE_MPI_FUNCTION(int, Allgather,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    MPI_Comm comm));
POISE_MPI_FUNCTION(int, Allgatherv,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, const int recvcounts[], const int displs[],
                    MPI_Datatype recvtype, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Allreduce,
                   (const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Alltoall,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    MPI_Comm comm));
POISE_MPI_FUNCTION(int, Alltoallv,
                   (const void *sendbuf, const int sendcounts[],
                    const int sdispls[], MPI_Datatype sendtype, void *recvbuf,
                    const int recvcounts[], const int rdispls[],
                    MPI_Datatype recvtype, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Alltoallw,
                   (const void *sendbuf, const int sendcounts[],
                    const int sdispls[], const MPI_Datatype sendtypes[],
                    void *recvbuf, const int recvcounts[], const int rdispls[],
                    const MPI_Datatype recvtypes[], MPI_Comm comm));
POISE_MPI_FUNCTION(int, Barrier, (MPI_Comm comm));
POISE_MPI_FUNCTION(int, Bcast,
                   (void *buffer, int count, MPI_Datatype datatype, int root,
                    MPI_Comm comm));
POISE_MPI_FUNCTION(int, Exscan,
                   (const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Gather,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    int root, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Gatherv,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, const int recvcounts[], const int displs[],
                    MPI_Datatype recvtype, int root, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Reduce,
                   (const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Reduce_scatter,
                   (const void *sendbuf, void *recvbuf, const int recvcounts[],
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Reduce_scatter_block,
                   (const void *sendbuf, void *recvbuf, int recvcount,
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Scan,
                   (const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Scatter,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    int root, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Scatterv,
                   (const void *sendbuf, const int sendcounts[],
                    const int displs[], MPI_Datatype sendtype, void *recvbuf,
                    int recvcount, MPI_Datatype recvtype, int root,
                    MPI_Comm comm));

/* Collective communication: non-blocking. */
POISE_MPI_FUNCTION(int, Iallgather,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Iallgatherv,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, const int recvcounts[], const int displs[],
                    MPI_Datatype recvtype, MPI_Comm comm,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Iallreduce,
                   (const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Ialltoall,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Ialltoallv,
                   (const void *sendbuf, const int sendcounts[],
                    const int sdispls[], MPI_Datatype sendtype, void *recvbuf,
                    const int recvcounts[], const int rdispls[],
                    MPI_Datatype recvtype, MPI_Comm comm,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Ialltoallw,
                   (const void *sendbuf, const int sendcounts[],
                    const int sdispls[], const MPI_Datatype sendtypes[],
                    void *recvbuf, const int recvcounts[], const int rdispls[],
                    const MPI_Datatype recvtypes[], MPI_Comm comm,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Ibarrier, (MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Ibcast,
                   (void *buffer, int count, MPI_Datatype datatype, int root,
                    MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Iexscan,
                   (const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Igather,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    int root, MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Igatherv,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, const int recvcounts[], const int displs[],
                    MPI_Datatype recvtype, int root, MPI_Comm comm,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Ireduce,
                   (const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Ireduce_scatter,
                   (const void *sendbuf, void *recvbuf, const int recvcounts[],
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Ireduce_scatter_block,
                   (const void *sendbuf, void *recvbuf, int recvcount,
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Iscan,
                   (const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Iscatter,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    int root, MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Iscatterv,
                   (const void *sendbuf, const int sendcounts[],
                    const int displs[], MPI_Datatype sendtype, void *recvbuf,
                    int recvcount, MPI_Datatype recvtype, int root,
                    MPI_Comm comm, MPI_Request *request));

/* Process topologies. */
POISE_MPI_FUNCTION(int, Cart_coords,
                   (MPI_Comm comm, int rank, int maxdims, int coords[]));
POISE_MPI_FUNCTION(int, Cart_create,
                   (MPI_Comm comm_old, int ndims, const int dims[],
                    const int periods[], int reorder, MPI_Comm *comm_cart));
POISE_MPI_FUNCTION(int, Cart_get,
                   (MPI_Comm comm, int maxdims, int dims[], int periods[],
                    int coords[]));
POISE_MPI_FUNCTION(int, Cart_rank,
                   (MPI_Comm comm, const int coords[], int *rank));
POISE_MPI_FUNCTION(int, Cart_shift,
                   (MPI_Comm comm, int direction, int disp, int *rank_source,
                    int *rank_dest));
POISE_MPI_FUNCTION(int, Cart_sub,
                   (MPI_Comm comm, const int remain_dims[], MPI_Comm *newcomm));
POISE_MPI_FUNCTION(int, Cartdim_get, (MPI_Comm comm, int *ndims));
POISE_MPI_FUNCTION(int, Dims_create, (int nnodes, int ndims, int dims[]));
POISE_MPI_FUNCTION(int, Dist_graph_create,
                   (MPI_Comm comm_old, int n, const int sources[],
                    const int degrees[], const int destinations[],
                    const int weights[], MPI_Info info, int reorder,
                    MPI_Comm *comm_dist_graph));
POISE_MPI_FUNCTION(int, Dist_graph_create_adjacent,
                   (MPI_Comm comm_old, int indegree, const int sources[],
                    const int sourceweights[], int outdegree,
                    const int destinations[], const int destweights[],
                    MPI_Info info, int reorder, MPI_Comm *comm_dist_graph));
POISE_MPI_FUNCTION(int, Dist_graph_neighbors,
                   (MPI_Comm comm, int maxindegree, int sources[],
                    int sourceweights[], int maxoutdegree, int destinations[],
                    int destweights[]));
POISE_MPI_FUNCTION(int, Dist_graph_neighbors_count,
                   (MPI_Comm comm, int *indegree, int *outdegree,
                    int *weighted));
POISE_MPI_FUNCTION(int, Graph_create,
                   (MPI_Comm comm_old, int nnodes, const int indx[],
                    const int edges[], int reorder, MPI_Comm *comm_graph));
POISE_MPI_FUNCTION(int, Graph_get,
                   (MPI_Comm comm, int maxindex, int maxedges, int indx[],
                    int edges[]));
POISE_MPI_FUNCTION(int, Graph_neighbors,
                   (MPI_Comm comm, int rank, int maxneighbors,
                    int neighbors[]));
POISE_MPI_FUNCTION(int, Graph_neighbors_count,
                   (MPI_Comm comm, int rank, int *nneighbors));
POISE_MPI_FUNCTION(int, Graphdims_get,
                   (MPI_Comm comm, int *nnodes, int *nedges));
POISE_MPI_FUNCTION(int, Topo_test, (MPI_Comm comm, int *status));
POISE_MPI_FUNCTION(int, Cart_map,
                   (MPI_Comm comm, int ndims, const int dims[],
                    const int periods[], int *newrank));
POISE_MPI_FUNCTION(int, Graph_map,
                   (MPI_Comm comm, int nnodes, const int indx[],
                    const int edges[], int *newrank));

/* Neighbourhood collectives. */
POISE_MPI_FUNCTION(int, Ineighbor_allgather,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Ineighbor_allgatherv,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, const int recvcounts[], const int displs[],
                    MPI_Datatype recvtype, MPI_Comm comm,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Ineighbor_alltoall,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Ineighbor_alltoallv,
                   (const void *sendbuf, const int sendcounts[],
                    const int sdispls[], MPI_Datatype sendtype, void *recvbuf,
                    const int recvcounts[], const int rdispls[],
                    MPI_Datatype recvtype, MPI_Comm comm,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Ineighbor_alltoallw,
                   (const void *sendbuf, const int sendcounts[],
                    const MPI_Aint sdispls[], const MPI_Datatype sendtypes[],
                    void *recvbuf, const int recvcounts[],
                    const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
                    MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Neighbor_allgather,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    MPI_Comm comm));
POISE_MPI_FUNCTION(int, Neighbor_allgatherv,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, const int recvcounts[], const int displs[],
                    MPI_Datatype recvtype, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Neighbor_alltoall,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    MPI_Comm comm));
POISE_MPI_FUNCTION(int, Neighbor_alltoallv,
                   (const void *sendbuf, const int sendcounts[],
                    const int sdispls[], MPI_Datatype sendtype, void *recvbuf,
                    const int recvcounts[], const int rdispls[],
                    MPI_Datatype recvtype, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Neighbor_alltoallw,
                   (const void *sendbuf, const int sendcounts[],
                    const MPI_Aint sdispls[], const MPI_Datatype sendtypes[],
                    void *recvbuf, const int recvcounts[],
                    const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
                    MPI_Comm comm));

/* Persistent collectives (MPI 4.0). */
POISE_MPI_FUNCTION(int, Allgather_init,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    MPI_Comm comm, MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Allgatherv_init,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, const int recvcounts[], const int displs[],
                    MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Allreduce_init,
                   (const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                    MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Alltoall_init,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    MPI_Comm comm, MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Alltoallv_init,
                   (const void *sendbuf, const int sendcounts[],
                    const int sdispls[], MPI_Datatype sendtype, void *recvbuf,
                    const int recvcounts[], const int rdispls[],
                    MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Alltoallw_init,
                   (const void *sendbuf, const int sendcounts[],
                    const int sdispls[], const MPI_Datatype sendtypes[],
                    void *recvbuf, const int recvcounts[], const int rdispls[],
                    const MPI_Datatype recvtypes[], MPI_Comm comm,
                    MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Barrier_init,
                   (MPI_Comm comm, MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Bcast_init,
                   (void *buffer, int count, MPI_Datatype datatype, int root,
                    MPI_Comm comm, MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Exscan_init,
                   (const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                    MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Gather_init,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    int root, MPI_Comm comm, MPI_Info info,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Gatherv_init,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, const int recvcounts[], const int displs[],
                    MPI_Datatype recvtype, int root, MPI_Comm comm,
                    MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Neighbor_allgather_init,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    MPI_Comm comm, MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Neighbor_allgatherv_init,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, const int recvcounts[], const int displs[],
                    MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Neighbor_alltoall_init,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    MPI_Comm comm, MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Neighbor_alltoallv_init,
                   (const void *sendbuf, const int sendcounts[],
                    const int sdispls[], MPI_Datatype sendtype, void *recvbuf,
                    const int recvcounts[], const int rdispls[],
                    MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Neighbor_alltoallw_init,
                   (const void *sendbuf, const int sendcounts[],
                    const MPI_Aint sdispls[], const MPI_Datatype sendtypes[],
                    void *recvbuf, const int recvcounts[],
                    const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
                    MPI_Comm comm, MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Reduce_init,
                   (const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm,
                    MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Reduce_scatter_init,
                   (const void *sendbuf, void *recvbuf, const int recvcounts[],
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                    MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Reduce_scatter_block_init,
                   (const void *sendbuf, void *recvbuf, int recvcount,
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                    MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Scan_init,
                   (const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                    MPI_Info info, MPI_Request *request));
POISE_MPI_FUNCTION(int, Scatter_init,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    int root, MPI_Comm comm, MPI_Info info,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, Scatterv_init,
                   (const void *sendbuf, const int sendcounts[],
                    const int displs[], MPI_Datatype sendtype, void *recvbuf,
                    int recvcount, MPI_Datatype recvtype, int root,
                    MPI_Comm comm, MPI_Info info, MPI_Request *request));
