/*
 * Topologies: how they are kept, copied and distinguished.
 */
#include "topology.h"

#include <stdlib.h>
#include <string.h>

static void topology_free(struct vcomm_topology *topology)
{
    free(topology);
}

/* Where in the copy that is which was at `from` in the original. */
static int *moved(const struct vrank_topology *original,
                  struct vrank_topology *copy, const int *from)
{
    return from == NULL ? NULL : copy->ints + (from - original->ints);
}

static int topology_copy(const struct poise_mpi_comm *from,
                         struct poise_mpi_comm *to)
{
    const struct vrank_topology *old = topology_of(from);
    struct vrank_topology *copy = topology_create(old->kind, old->int_count);
    size_t used = old->int_count;

    if (copy == NULL) {
        return MPI_ERR_NO_MEM;
    }
    memcpy(copy, old, sizeof *old + used * sizeof(int));
    copy->dims = moved(old, copy, old->dims);
    copy->periods = moved(old, copy, old->periods);
    copy->coords = moved(old, copy, old->coords);
    copy->index = moved(old, copy, old->index);
    copy->edges = moved(old, copy, old->edges);
    copy->sources = moved(old, copy, old->sources);
    copy->destinations = moved(old, copy, old->destinations);
    copy->source_weights = moved(old, copy, old->source_weights);
    copy->destination_weights = moved(old, copy, old->destination_weights);
    to->topology = &copy->head;
    return MPI_SUCCESS;
}

struct vrank_topology *topology_create(int kind, size_t ints)
{
    struct vrank_topology *topology =
        poise_alloc(1, sizeof *topology + ints * sizeof(int));

    if (topology != NULL) {
        topology->head.copy = topology_copy;
        topology->head.free = topology_free;
        topology->kind = kind;
    }
    return topology;
}

int *topology_ints(struct vrank_topology *topology, const int *values,
                   int count)
{
    int *ints = topology->ints + topology->int_count;

    if (values != NULL && count > 0) {
        memcpy(ints, values, (size_t)count * sizeof(int));
    }
    topology->int_count += (size_t)count;
    return ints;
}

int topology_make(struct poise_mpi_comm *comm, const int *members, int count,
                  struct vrank_topology *topology, const char *call,
                  MPI_Comm *out)
{
    int *numbers = poise_alloc((size_t)count + 1, sizeof(int));
    MPI_Group group = NULL;
    int code = numbers == NULL ? MPI_ERR_NO_MEM : MPI_SUCCESS;

    for (int i = 0; code == MPI_SUCCESS && i < count; i++) {
        numbers[i] = group_at(comm->group, members[i]);
    }
    if (code == MPI_SUCCESS) {
        code = group_make(comm->mpi, numbers, count, &group);
    }
    if (code == MPI_SUCCESS) {
        code = vcomm_make(comm, group, call, out);
        group_release(group);
    }
    free(numbers);
    if (code == MPI_SUCCESS && *out != MPI_COMM_NULL && topology != NULL) {
        (*out)->topology = &topology->head;
    } else {
        free(topology);
    }
    return code;
}

struct vrank_topology *topology_enter(const char *call, MPI_Comm handle,
                                      int kind, struct poise_mpi_comm **comm,
                                      int *code)
{
    struct vrank_mpi *mpi = mpi_enter(call);
    struct vrank_topology *topology;

    *comm = vcomm_of(mpi, handle);
    if (*comm == NULL) {
        *code = mpi_fail(mpi, NULL, MPI_ERR_COMM, NULL);
        return NULL;
    }
    topology = topology_of(*comm);
    if (topology == NULL || topology->kind != kind) {
        *code = mpi_fail(mpi, *comm, MPI_ERR_TOPOLOGY, NULL);
        return NULL;
    }
    return topology;
}

int MPI_Topo_test(MPI_Comm handle, int *status)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Topo_test");
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle);

    if (comm == NULL) {
        return mpi_fail(mpi, NULL, MPI_ERR_COMM, NULL);
    }
    *status = comm->topology == NULL ? MPI_UNDEFINED : topology_of(comm)->kind;
    return MPI_SUCCESS;
}
