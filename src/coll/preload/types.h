/* Which of MPI's types and operations have a counterpart in Poise. */
#ifndef POISE_COLL_PRELOAD_TYPES_H
#define POISE_COLL_PRELOAD_TYPES_H

#include <mpi.h>

#include <poise/coll.h>

/* False: there is none. */
bool preload_type_of(MPI_Datatype type, enum poise_coll_type *out);
bool preload_op_of(MPI_Op op, enum poise_coll_op *out);

#endif
