/*
 * Packing in pieces: MPI_Pack counts bytes by an int. An element that alone is
 * longer goes through a message to oneself, whose receiver takes bytes.
 */
#include "plain.h"
#include "communicator.h"
#include "types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of one call of MPI. */
#define PIECE ((uint64_t)1 << 30)

bool plain_type(MPI_Datatype type)
{
    enum poise_coll_type t;
    return type == MPI_BYTE || type == MPI_CHAR || preload_type_of(type, &t);
}

uint64_t plain_bytes(MPI_Datatype type)
{
    MPI_Count bytes = 0;
    PMPI_Type_size_x(type, &bytes);
    return bytes > 0 ? (uint64_t)bytes : 0;
}

void *plain_at(const void *buffer, int64_t i, MPI_Datatype type)
{
    MPI_Aint low = 0, extent = 0;
    PMPI_Type_get_extent(type, &low, &extent);
    return (void *)((intptr_t)buffer + i * extent);
}

int plain_make(struct plain *plain, const void *buffer, uint64_t number,
               MPI_Datatype type, bool apart)
{
    *plain = (struct plain){.data = (void *)(uintptr_t)buffer,
                            .bytes = number * plain_bytes(type)};
    if (plain->bytes == 0 || (plain_type(type) && !apart)) {
        return 0;
    }
    plain->packed = malloc(plain->bytes);
    plain->data = plain->packed;
    return plain->packed ? 0
                         : poise_error_set(ENOMEM, "pack a message", NULL,
                                           "there is no memory for %llu bytes",
                                           (unsigned long long)plain->bytes);
}

void plain_free(struct plain *plain)
{
    free(plain->packed);
}

/* Bytes of any number as one element of a type; to be freed. */
static int long_type(uint64_t bytes, MPI_Datatype *out)
{
    MPI_Datatype piece = MPI_DATATYPE_NULL, pieces = MPI_DATATYPE_NULL;
    int code = PMPI_Type_contiguous((int)PIECE, MPI_BYTE, &piece);
    if (code == MPI_SUCCESS) {
        code = PMPI_Type_contiguous((int)(bytes / PIECE), piece, &pieces);
    }
    if (code == MPI_SUCCESS) {
        MPI_Datatype parts[2] = {pieces, MPI_BYTE};
        int blocks[2] = {1, (int)(bytes % PIECE)};
        MPI_Aint places[2] = {0, (MPI_Aint)(bytes - bytes % PIECE)};
        code = PMPI_Type_create_struct(2, blocks, places, parts, out);
    }
    if (code == MPI_SUCCESS) {
        code = PMPI_Type_commit(out);
    }
    if (piece != MPI_DATATYPE_NULL) {
        PMPI_Type_free(&piece);
    }
    if (pieces != MPI_DATATYPE_NULL) {
        PMPI_Type_free(&pieces);
    }
    return code;
}

/* One element of a type that is longer than an int can say. */
static int move_long(bool pack, void *packed, void *element, uint64_t bytes,
                     MPI_Datatype type)
{
    MPI_Datatype plain;
    MPI_Comm quiet = preload_quiet();
    int code = long_type(bytes, &plain);
    if (code != MPI_SUCCESS) {
        return code;
    }
    code = PMPI_Sendrecv(pack ? element : packed, 1, pack ? type : plain, 0, 0,
                         pack ? packed : element, 1, pack ? plain : type, 0, 0,
                         quiet, MPI_STATUS_IGNORE);
    PMPI_Type_free(&plain);
    return code;
}

int plain_move(bool pack, void *packed, void *buffer, uint64_t number,
               MPI_Datatype type)
{
    uint64_t each = plain_bytes(type);
    if (plain_type(type) && number > 0) {
        memcpy(pack ? packed : buffer, pack ? buffer : packed, number * each);
        return 0;
    }
    uint64_t most = each > 0 ? PIECE / each : 0;
    MPI_Comm quiet = preload_quiet();
    int code = MPI_SUCCESS;
    for (uint64_t i = 0; i < number && each > 0 && code == MPI_SUCCESS;) {
        uint64_t now = number - i < most ? number - i : most;
        char *here = (char *)packed + i * each;
        void *there = plain_at(buffer, (int64_t)i, type);
        int at = 0;
        if (most == 0) {
            code = move_long(pack, here, there, each, type);
            now = 1;
        } else if (pack) {
            code = PMPI_Pack(there, (int)now, type, here, (int)(now * each),
                             &at, quiet);
        } else {
            code = PMPI_Unpack(here, (int)(now * each), &at, there, (int)now,
                               type, quiet);
        }
        i += now;
    }
    return code;
}

int plain_pack(const struct plain *plain, const void *buffer, uint64_t number,
               MPI_Datatype type)
{
    return plain->packed ? plain_move(true, plain->packed,
                                      (void *)(uintptr_t)buffer, number, type)
                         : 0;
}

int plain_unpack(const struct plain *plain, void *buffer, uint64_t number,
                 MPI_Datatype type)
{
    return plain->packed
               ? plain_move(false, plain->packed, buffer, number, type)
               : 0;
}
