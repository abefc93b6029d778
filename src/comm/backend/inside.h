/*
 * What the files of a back end share.
 */
#ifndef POISE_COMM_BACKEND_INSIDE_H
#define POISE_COMM_BACKEND_INSIDE_H

#include "backend.h"

#include <mpi.h>

struct comm_mpi {
    MPI_Comm comm;
    bool owned; /* to be freed: not MPI_COMM_WORLD */
    int rank, size;
    /* Sends under way: [pending] of [cap]. */
    MPI_Request *requests;
    void **buffers;
    /* Work space for MPI_Testsome; gcc takes MPICH's MPI_STATUSES_IGNORE for
     * an array that is too small. */
    int *done;
    MPI_Status *statuses;
    int pending, cap;
    MPI_Message held; /* probed, not yet received */
    MPI_Count held_len;
    MPI_Request incoming, barrier;
};

/* How `len` bytes are described to MPI; `type` is to be given back. */
int backend_count_of(MPI_Count len, int *count, MPI_Datatype *type);
void backend_free_type(MPI_Datatype *type);

/* wire.c: see struct comm_backend. */
int backend_wire_open(struct comm_mpi *mpi, int slots, size_t slot_bytes,
                      struct comm_wire **out);
void *backend_wire_room(struct comm_wire *wire);
int backend_wire_send(struct comm_wire *wire, int dest, size_t len);
int backend_wire_transfer(struct comm_wire *wire,
                          const struct comm_transfer *what);
int backend_wire_poll(struct comm_wire *wire, bool *found,
                      struct comm_wire_event *out);
size_t backend_wire_busy(const struct comm_wire *wire);
void backend_wire_close(struct comm_wire *wire);

#endif
