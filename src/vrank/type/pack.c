/*
 * MPI_Pack and its kin. Packed data is the data without its gaps: all ranks
 * run on machines of one kind. What is packed for machines of other kinds is
 * converted besides (external.c).
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "make.h"
#include "vrank/mpi/comm.h"

/* What packing and unpacking have to check: `bytes` of data fit behind
 * position `position` of a buffer of `size` bytes. */
static int check(int count, MPI_Datatype type, int size, int position,
                 size_t *bytes)
{
    if (count < 0) {
        return MPI_ERR_COUNT;
    }
    if (type == MPI_DATATYPE_NULL || !type->committed) {
        return MPI_ERR_TYPE;
    }
    *bytes = type_bytes(type, (size_t)count);
    if (position < 0 || position > size || *bytes > (size_t)(size - position)) {
        return MPI_ERR_TRUNCATE;
    }
    return MPI_SUCCESS;
}

static int pack_fail(const char *call, MPI_Comm comm, int code)
{
    struct vrank_mpi *mpi = mpi_enter(call);

    return mpi_fail(mpi, vcomm_of(mpi, comm), code, NULL);
}

int MPI_Pack(const void *inbuf, int incount, MPI_Datatype datatype,
             void *outbuf, int outsize, int *position, MPI_Comm comm)
{
    size_t bytes;
    int code = check(incount, datatype, outsize, *position, &bytes);

    if (code != MPI_SUCCESS) {
        return pack_fail("MPI_Pack", comm, code);
    }
    type_pack(datatype, (size_t)incount, inbuf, 0, bytes,
              (char *)outbuf + *position);
    *position += (int)bytes;
    return MPI_SUCCESS;
}

int MPI_Unpack(const void *inbuf, int insize, int *position, void *outbuf,
               int outcount, MPI_Datatype datatype, MPI_Comm comm)
{
    size_t bytes;
    int code = check(outcount, datatype, insize, *position, &bytes);

    if (code != MPI_SUCCESS) {
        return pack_fail("MPI_Unpack", comm, code);
    }
    type_unpack(datatype, (size_t)outcount, outbuf, 0, bytes,
                (const char *)inbuf + *position);
    *position += (int)bytes;
    return MPI_SUCCESS;
}

int MPI_Pack_size(int incount, MPI_Datatype datatype, MPI_Comm comm, int *size)
{
    size_t bytes;
    int code = check(incount, datatype, INT_MAX, 0, &bytes);

    if (code != MPI_SUCCESS) {
        return pack_fail("MPI_Pack_size", comm, code);
    }
    *size = (int)bytes;
    return MPI_SUCCESS;
}

/* ---- for other machines ------------------------------------------------- */

/* What both directions have to check: *native bytes here are *external there,
 * which fit behind a position. */
static int check_external(const char *datarep, int count, MPI_Datatype type,
                          MPI_Aint size, MPI_Aint position, size_t *native,
                          size_t *external)
{
    if (datarep == NULL || strcmp(datarep, "external32") != 0) {
        return MPI_ERR_ARG;
    }
    if (count < 0) {
        return MPI_ERR_COUNT;
    }
    if (type == MPI_DATATYPE_NULL || !type->committed) {
        return MPI_ERR_TYPE;
    }
    *native = type_bytes(type, (size_t)count);
    *external = (size_t)count * type_external_bytes(type);
    return position < 0 || position > size ||
                   *external > (size_t)(size - position)
               ? MPI_ERR_TRUNCATE
               : MPI_SUCCESS;
}

int MPI_Pack_external(const char datarep[], const void *inbuf, int incount,
                      MPI_Datatype datatype, void *outbuf, MPI_Aint outsize,
                      MPI_Aint *position)
{
    size_t native, external;
    char *packed = NULL;
    int code = check_external(datarep, incount, datatype, outsize, *position,
                              &native, &external);

    if (code == MPI_SUCCESS) {
        packed = poise_alloc(native + 1, 1);
        code = packed == NULL ? MPI_ERR_NO_MEM : MPI_SUCCESS;
    }
    if (code == MPI_SUCCESS) {
        type_pack(datatype, (size_t)incount, inbuf, 0, native, packed);
        code = type_to_external(datatype, (size_t)incount, packed,
                                (char *)outbuf + *position);
    }
    free(packed);
    if (code != MPI_SUCCESS) {
        return type_fail("MPI_Pack_external", code);
    }
    *position += (MPI_Aint)external;
    return MPI_SUCCESS;
}

int MPI_Unpack_external(const char datarep[], const void *inbuf,
                        MPI_Aint insize, MPI_Aint *position, void *outbuf,
                        int outcount, MPI_Datatype datatype)
{
    size_t native, external;
    char *packed = NULL;
    int code = check_external(datarep, outcount, datatype, insize, *position,
                              &native, &external);

    if (code == MPI_SUCCESS) {
        packed = poise_alloc(native + 1, 1);
        code = packed == NULL ? MPI_ERR_NO_MEM : MPI_SUCCESS;
    }
    if (code == MPI_SUCCESS) {
        code = type_from_external(datatype, (size_t)outcount,
                                  (const char *)inbuf + *position, packed);
        type_unpack(datatype, (size_t)outcount, outbuf, 0, native, packed);
    }
    free(packed);
    if (code != MPI_SUCCESS) {
        return type_fail("MPI_Unpack_external", code);
    }
    *position += (MPI_Aint)external;
    return MPI_SUCCESS;
}

int MPI_Pack_external_size(const char datarep[], int incount,
                           MPI_Datatype datatype, MPI_Aint *size)
{
    size_t native, external;
    int code = check_external(datarep, incount, datatype, PTRDIFF_MAX, 0,
                              &native, &external);

    if (code != MPI_SUCCESS) {
        return type_fail("MPI_Pack_external_size", code);
    }
    *size = (MPI_Aint)external;
    return MPI_SUCCESS;
}
