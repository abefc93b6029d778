/*
 * Elements of a program's buffers as plain bytes: where they lie, or packed
 * (plain.c). Any number of bytes: MPI's own packing knows int only.
 */
#ifndef POISE_COLL_PRELOAD_PLAIN_H
#define POISE_COLL_PRELOAD_PLAIN_H

#include <mpi.h>

#include <stdbool.h>
#include <stdint.h>

struct plain {
    void *data;   /* bytes in order */
    void *packed; /* owned; NULL: data is the buffer itself */
    uint64_t bytes;
};

/* Whether elements of this type lie as bytes in order. */
bool plain_type(MPI_Datatype type);
/* Bytes of one; of a type that may be used. */
uint64_t plain_bytes(MPI_Datatype type);
/* Where element `i` of a buffer lies. */
void *plain_at(const void *buffer, int64_t i, MPI_Datatype type);

/* Room for `number` elements; in the buffer itself, where that is possible and
 * `apart` is not set. -ENOMEM. */
int plain_make(struct plain *plain, const void *buffer, uint64_t number,
               MPI_Datatype type, bool apart);
/* What MPI says (above 0), or 0. Nothing is to be done where data is the
 * buffer. */
int plain_pack(const struct plain *plain, const void *buffer, uint64_t number,
               MPI_Datatype type);
int plain_unpack(const struct plain *plain, void *buffer, uint64_t number,
                 MPI_Datatype type);
/* The same between bytes at `packed` and `number` elements. */
int plain_move(bool pack, void *packed, void *buffer, uint64_t number,
               MPI_Datatype type);
void plain_free(struct plain *plain);

#endif
