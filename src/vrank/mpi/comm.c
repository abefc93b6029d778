/*
 * Communicators as objects of their rank; how ranks agree on a new one is
 * communicator/communicator.c's.
 */
#include "comm.h"

#include <stdlib.h>

/* The addresses are the handles; the objects are each rank's own. */
const struct poise_mpi_comm poise_mpi_comm_world = {0};
const struct poise_mpi_comm poise_mpi_comm_self = {0};

uint64_t vcomm_context(struct vrank_mpi *mpi)
{
    uint64_t mine = (uint64_t)mpi->number << 32 | mpi->contexts;
    mpi->contexts += PLANES;
    return mine;
}

int vcomm_new(struct vrank_mpi *mpi, uint64_t context, MPI_Group group,
              MPI_Group remote, struct poise_mpi_comm **out)
{
    struct poise_mpi_comm *comm = poise_alloc(1, sizeof *comm);
    if (!comm) {
        return MPI_ERR_NO_MEM;
    }
    comm->shared = vcomm_shared_join(context, group);
    if (!comm->shared) {
        free(comm);
        return MPI_ERR_NO_MEM;
    }
    comm->context = context;
    comm->mpi = mpi;
    comm->rank = group->rank;
    comm->size = group->size;
    comm->group = group_hold(group);
    comm->remote = remote ? group_hold(remote) : NULL;
    comm->refs = 1;
    comm->handler = MPI_ERRORS_ARE_FATAL;
    comm->next = mpi->comms;
    if (mpi->comms) {
        mpi->comms->prev = comm;
    }
    mpi->comms = comm;
    *out = comm;
    return MPI_SUCCESS;
}

void vcomm_hold(struct poise_mpi_comm *comm)
{
    comm->refs++;
}

static void comm_free(struct poise_mpi_comm *comm)
{
    if (comm->prev) {
        comm->prev->next = comm->next;
    } else {
        comm->mpi->comms = comm->next;
    }
    if (comm->next) {
        comm->next->prev = comm->prev;
    }
    if (comm->topology) {
        comm->topology->free(comm->topology);
    }
    errhandler_release(comm->handler);
    vcomm_shared_leave(comm->shared);
    group_release(comm->group);
    group_release(comm->remote);
    free(comm->attributes.items);
    free(comm);
}

void vcomm_release(struct poise_mpi_comm *comm)
{
    if (--comm->refs == 0) {
        if (comm->local) {
            vcomm_release(comm->local);
        }
        comm_free(comm);
    }
}

void vcomm_free_all(struct vrank_mpi *mpi)
{
    while (mpi->comms) {
        comm_free(mpi->comms);
    }
    mpi->world = mpi->self = NULL;
}
