/*
 * poise/mpi.h - a Poise world from an MPI communicator.
 *
 * The only header that knows MPI_Comm: it is compiled against the user's MPI,
 * libpoise is not. MPI must be initialised, with MPI_THREAD_FUNNELED or more
 * if Poise is to use threads; the world must be destroyed before MPI is
 * finalised.
 */
#ifndef POISE_MPI_H
#define POISE_MPI_H

#include <mpi.h>

#include <poise/comm.h>

/** Collective over `comm`, which is duplicated and stays the caller's. */
static inline int poise_world_from_mpi(MPI_Comm comm, struct poise_world **out)
{
#if defined(OPEN_MPI)
    const char *flavour = "ompi";
#elif defined(MPICH)
    const char *flavour = "mpich";
#elif defined(POISE_VMPI)
    const char *flavour = "vmpi"; /* virtual ranks */
#else
    const char *flavour = "unknown";
#endif
    return poise_world_adopt(flavour, &comm, sizeof comm, out);
}

#endif
