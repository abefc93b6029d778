/* Which of MPI's types and operations have a counterpart in Poise. */
#ifndef POISE_COLL_PRELOAD_TYPES_H
#define POISE_COLL_PRELOAD_TYPES_H

#include <mpi.h>

#include <poise/coll.h>

/* False: there is none. */
bool preload_type_of(MPI_Datatype type, enum poise_coll_type *out);
/* Bytes of one element of a type that has a counterpart, else 0. */
uint64_t preload_width_of(MPI_Datatype type);
bool preload_op_of(MPI_Op op, enum poise_coll_op *out);

#endif
