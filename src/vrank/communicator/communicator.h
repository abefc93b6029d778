/*
 * How communicators are made: the ranks that will be in one agree on its
 * context (see communicator.c).
 */
#ifndef POISE_VRANK_COMMUNICATOR_H
#define POISE_VRANK_COMMUNICATOR_H

#include "vrank/message/message.h"

/**
 * A communicator of `group`, which all members of `over` that are in it make
 * at the same time; others pass NULL and get MPI_COMM_NULL. Collective over
 * `over`, which is no intercommunicator.
 */
int vcomm_make(struct poise_mpi_comm *over, MPI_Group group, const char *why,
               MPI_Comm *out);
/* All ranks get the root's bytes. Collective over `comm`. */
int vcomm_broadcast(struct poise_mpi_comm *comm, int root, int tag, void *data,
                    size_t bytes, const char *why);
/* A duplicate of an intercommunicator (intercomm.c). */
int intercomm_dup(struct poise_mpi_comm *comm, const char *why, MPI_Comm *out);

#endif /* POISE_VRANK_COMMUNICATOR_H */
