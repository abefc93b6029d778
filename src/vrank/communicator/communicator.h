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
/* The communicator behind a handle; NULL after the handler was called with
 * *code. */
struct poise_mpi_comm *comm_arg(struct vrank_mpi *mpi, MPI_Comm handle,
                                int *code);

/* ---- intercommunicators (intercomm.c) ----------------------------------- */

/* A duplicate. */
int intercomm_dup(struct poise_mpi_comm *comm, const char *why, MPI_Comm *out);
/* One of `group`, a part of the own one, and what the other side passes;
 * MPI_COMM_NULL for those who are not in it, or if either is empty. Collective
 * over both groups. */
int intercomm_part(struct poise_mpi_comm *comm, MPI_Group group,
                   const char *why, MPI_Comm *out);
/* Ranks 0 of both groups exchange data, and agree on a context: what they get
 * is theirs alone. Called by all. */
int intercomm_agree(struct poise_mpi_comm *comm, const void *mine,
                    size_t mine_bytes, void *theirs, size_t theirs_bytes,
                    uint64_t *context, const char *why);
/* Make the object of what was agreed on; `local`, the own group's communicator,
 * is held by it afterwards, also if this fails. */
int intercomm_build(struct poise_mpi_comm *local, uint64_t context,
                    MPI_Group remote, MPI_Errhandler handler, MPI_Comm *out);

#endif /* POISE_VRANK_COMMUNICATOR_H */
