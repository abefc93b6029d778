/*
 * What types need of the rank that uses them.
 */
#include "vrank/mpi/entry.h"
#include "make.h"

int type_fail(const char *call, int error)
{
    return face_fail(face_enter_any(call), NULL, error, NULL);
}

int type_copy_attributes(MPI_Datatype from, MPI_Datatype to)
{
    return from->attributes == NULL ? MPI_SUCCESS
                                    : face_type_attributes_copy(from, to);
}

int type_clear_attributes(MPI_Datatype type)
{
    return type->attributes == NULL ? MPI_SUCCESS
                                    : face_type_attributes_free(type);
}
