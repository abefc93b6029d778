/*
 * MPI_Pack and its kin. Packed data is the data without its gaps: all ranks
 * run on machines of one kind.
 */
#include <limits.h>

#include "type.h"
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
