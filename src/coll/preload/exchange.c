/*
 * What goes from each rank to each: items of one length, or blocks of any.
 */
#include "check.h"
#include "communicator.h"
#include "plain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- items of one length ------------------------------------------------ */

static int exchange(struct poise_coll *coll, const struct seat *seat,
                    const struct side *in, const struct side *out,
                    uint64_t bytes)
{
    bool in_place = in->buffer == MPI_IN_PLACE;
    const struct side *source = in_place ? out : in;
    uint64_t size = (uint64_t)seat->size;
    uint64_t from_number = (uint64_t)source->number * size;
    uint64_t to_number = (uint64_t)out->number * size;
    void *result = (void *)(uintptr_t)out->buffer;
    struct plain from, to = {0};
    /* What is in place is overwritten: a copy. */
    int code =
        plain_make(&from, source->buffer, from_number, source->type, in_place);
    if (code == 0) {
        code = plain_make(&to, result, to_number, out->type, false);
    }
    if (code == 0) {
        code = plain_pack(&from, source->buffer, from_number, source->type);
    }
    if (code == 0) {
        code = poise_coll_alltoall(coll, from.data, to.data, bytes);
    }
    if (code == 0) {
        code = plain_unpack(&to, result, to_number, out->type);
    }
    plain_free(&from);
    plain_free(&to);
    return code;
}

EXPORT int MPI_Alltoall(const void *in, int in_number, MPI_Datatype in_type,
                        void *out, int out_number, MPI_Datatype out_type,
                        MPI_Comm comm)
{
    const struct side from = {in, in_number, in_type};
    const struct side to = {out, out_number, out_type};
    struct seat seat = {0};
    struct poise_coll *coll = NULL;
    uint64_t bytes = 0;
    if (preload_sit(ALLTOALL, comm, &seat)) {
        bool right = check_alltoall(&from, &to, &bytes);
        if (right && bytes > 0) {
            coll = preload_trees(ALLTOALL, &seat, bytes);
        } else {
            preload_count(ALLTOALL, right ? EMPTY : WRONG);
        }
    }
    if (!coll) {
        return seat.code ? seat.code
                         : PMPI_Alltoall(in, in_number, in_type, out,
                                         out_number, out_type, comm);
    }
    preload_inside++;
    return preload_result(ALLTOALL, comm,
                          exchange(coll, &seat, &from, &to, bytes));
}

/* ---- blocks of any length ------------------------------------------------ */

/* Blocks of elements, and where they lie as plain bytes. */
struct blocks {
    const struct sides *sides;
    int count;
    struct poise_coll_block *at; /* [count], owned */
    char *data;
    char *packed; /* owned; NULL: data is the buffer itself */
};

/* `apart`: never in the buffer itself. */
static int blocks_make(struct blocks *blocks, bool apart)
{
    const struct sides *sides = blocks->sides;
    size_t at = 0;
    blocks->at = calloc((size_t)blocks->count, sizeof *blocks->at);
    if (!blocks->at) {
        return poise_error_set(ENOMEM, "pack a message", NULL, NULL);
    }
    apart = apart || !plain_type(sides->type);
    uint64_t each = plain_bytes(sides->type);
    for (int i = 0; i < blocks->count; i++) {
        apart = apart || sides->places[i] < 0;
    }
    for (int i = 0; i < blocks->count; i++) {
        size_t bytes = (size_t)sides->numbers[i] * each;
        blocks->at[i] = (struct poise_coll_block){
            apart ? at : (size_t)sides->places[i] * each, bytes};
        at += bytes;
    }
    blocks->data = (char *)(uintptr_t)sides->buffer;
    if (apart) {
        blocks->data = blocks->packed = malloc(at + 1);
    }
    return blocks->data || !apart
               ? 0
               : poise_error_set(ENOMEM, "pack a message", NULL, NULL);
}

static int blocks_move(const struct blocks *blocks, bool pack)
{
    const struct sides *sides = blocks->sides;
    int code = 0;
    for (int i = 0; i < blocks->count && blocks->packed && code == 0; i++) {
        code =
            plain_move(pack, blocks->packed + blocks->at[i].offset,
                       plain_at(sides->buffer, sides->places[i], sides->type),
                       (uint64_t)sides->numbers[i], sides->type);
    }
    return code;
}

static void blocks_free(struct blocks *blocks)
{
    free(blocks->at);
    free(blocks->packed);
}

static int exchange_blocks(struct poise_coll *coll, const struct seat *seat,
                           const struct sides *in, const struct sides *out)
{
    bool in_place = in->buffer == MPI_IN_PLACE;
    struct blocks to = {.sides = out, .count = seat->size};
    struct blocks from = {.sides = in_place ? out : in, .count = seat->size};
    int code = blocks_make(&from, in_place);
    if (code == 0) {
        code = blocks_make(&to, false);
    }
    if (code == 0) {
        code = blocks_move(&from, true);
    }
    if (code == 0) {
        code = poise_coll_alltoallv(coll, from.data, from.at, to.data, to.at);
    }
    if (code == 0) {
        code = blocks_move(&to, false);
    }
    blocks_free(&from);
    blocks_free(&to);
    return code;
}

EXPORT int MPI_Alltoallv(const void *in, const int *in_numbers,
                         const int *in_places, MPI_Datatype in_type, void *out,
                         const int *out_numbers, const int *out_places,
                         MPI_Datatype out_type, MPI_Comm comm)
{
    const struct sides from = {in, in_numbers, in_places, in_type};
    const struct sides to = {out, out_numbers, out_places, out_type};
    struct seat seat = {0};
    struct poise_coll *coll = NULL;
    if (preload_sit(ALLTOALL, comm, &seat)) {
        if (check_alltoallv(&seat, &from, &to)) {
            /* Lengths differ between ranks: the communicator alone decides. */
            coll = preload_trees(ALLTOALL, &seat, 0);
        } else {
            preload_count(ALLTOALL, WRONG);
        }
    }
    if (!coll) {
        return seat.code
                   ? seat.code
                   : PMPI_Alltoallv(in, in_numbers, in_places, in_type, out,
                                    out_numbers, out_places, out_type, comm);
    }
    preload_inside++;
    return preload_result(ALLTOALL, comm,
                          exchange_blocks(coll, &seat, &from, &to));
}
