/*
 * libpoise-coll-MPI.so: a preload that takes over the collectives of an
 * unchanged, dynamically linked MPI program. Compiled once against each MPI.
 *
 * A communicator gets a Poise world and trees of its own when the first of its
 * collectives comes by. Tree or library is chosen only from what MPI makes
 * equal on all ranks: the communicator, the number of bytes, and, in
 * reductions, type and operation. Types that may differ between ranks are
 * packed. All else falls through to the library and is counted.
 *
 * Environment: POISE_COLL_MAX, the longest message that goes over trees
 * (bytes, K and M allowed; unless it is said, 64 KiB where long vectors cannot
 * stay where they are, see poise_coll_is_direct, else any);
 * POISE_COLL_REPORT=1, counts on standard error when MPI is finalised;
 * POISE_TREE, as for poise_coll_create; POISE_COLL_RULES, call sites that are
 * made conditional (rules.c); POISE_COLL_RECORD, where to write what rules
 * could be made of (record.c).
 */
#include "communicator.h"
#include "rules.h"
#include "types.h"

#include <poise/comm.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__thread const void *preload_site;

/* ---- types and operations ----------------------------------------------- */

/* Both are the same on all ranks. */
static bool can_combine(enum entry entry, MPI_Datatype type, MPI_Op op,
                        enum poise_coll_type *t, enum poise_coll_op *o)
{
    bool real =
        preload_type_of(type, t) && (*t == POISE_FLOAT || *t == POISE_DOUBLE);
    if (preload_type_of(type, t) && preload_op_of(op, o) &&
        (!real || *o <= POISE_OP_MAX)) {
        return true;
    }
    if (!preload_inside) {
        preload_count(entry, TYPE);
    }
    return false;
}

static uint64_t bytes_of(int number, MPI_Datatype type)
{
    int size = 0;
    if (number < 0 || type == MPI_DATATYPE_NULL ||
        PMPI_Type_size(type, &size) != MPI_SUCCESS || size < 0) {
        return UINT64_MAX; /* the library will say what is wrong */
    }
    return (uint64_t)number * (uint64_t)size;
}

/* Elements of a buffer as plain bytes: where they lie, or packed. */
struct plain {
    void *data;   /* bytes in order */
    void *packed; /* owned; NULL: data is the buffer itself */
    uint64_t bytes;
};

static bool is_plain(MPI_Datatype type)
{
    enum poise_coll_type t;
    return type == MPI_BYTE || type == MPI_CHAR || preload_type_of(type, &t);
}

static int plain_make(struct plain *plain, void *buffer, int number,
                      MPI_Datatype type)
{
    *plain = (struct plain){.data = buffer, .bytes = bytes_of(number, type)};
    if (is_plain(type) || plain->bytes == 0) {
        return 0;
    }
    plain->packed = malloc(plain->bytes);
    plain->data = plain->packed;
    return plain->packed ? 0 : -ENOMEM;
}

static int plain_pack(struct plain *plain, const void *buffer, int number,
                      MPI_Datatype type, MPI_Comm comm)
{
    int at = 0;
    if (!plain->packed) {
        return 0;
    }
    return PMPI_Pack(buffer, number, type, plain->packed, (int)plain->bytes,
                     &at, comm) == MPI_SUCCESS &&
                   (uint64_t)at == plain->bytes
               ? 0
               : poise_error_set(EINVAL, "pack a message", NULL,
                                 "the MPI refused");
}

static int plain_unpack(struct plain *plain, void *buffer, int number,
                        MPI_Datatype type, MPI_Comm comm)
{
    int at = 0;
    if (!plain->packed) {
        return 0;
    }
    return PMPI_Unpack(plain->packed, (int)plain->bytes, &at, buffer, number,
                       type, comm) == MPI_SUCCESS
               ? 0
               : poise_error_set(EINVAL, "unpack a message", NULL,
                                 "the MPI refused");
}

static int rank_in(MPI_Comm comm)
{
    int rank = -1;
    PMPI_Comm_rank(comm, &rank);
    return rank;
}

static int size_of(MPI_Comm comm)
{
    int size = 0;
    PMPI_Comm_size(comm, &size);
    return size;
}

/* ---- the collectives ---------------------------------------------------- */

#define EXPORT __attribute__((visibility("default")))

EXPORT int MPI_Barrier(MPI_Comm comm)
{
    struct poise_coll *coll = preload_trees(BARRIER, comm, 0);
    if (!coll) {
        return PMPI_Barrier(comm);
    }
    preload_inside++;
    return preload_result(BARRIER, comm, poise_coll_barrier(coll));
}

EXPORT int MPI_Bcast(void *buffer, int number, MPI_Datatype type, int root,
                     MPI_Comm comm)
{
    struct poise_coll *coll =
        preload_trees(BCAST, comm, bytes_of(number, type));
    if (!coll) {
        return PMPI_Bcast(buffer, number, type, root, comm);
    }
    preload_inside++;
    struct plain plain;
    bool mine = rank_in(comm) == root;
    int code = plain_make(&plain, buffer, number, type);
    if (code == 0 && mine) {
        code = plain_pack(&plain, buffer, number, type, comm);
    }
    if (code == 0) {
        code = poise_coll_broadcast(coll, root, plain.data, plain.bytes);
    }
    if (code == 0 && !mine) {
        code = plain_unpack(&plain, buffer, number, type, comm);
    }
    free(plain.packed);
    return preload_result(BCAST, comm, code);
}

/* An allreduce over trees, or what a rule says. */
static int combine_all(struct poise_coll *coll, const void *site,
                       const void *in, void *out, int number,
                       enum poise_coll_type type, enum poise_coll_op op,
                       MPI_Comm comm)
{
    struct state *state = rules_exist() && rules_fit(number, type, op)
                              ? preload_find(comm)
                              : NULL;
    if (state && state->cond) {
        return rules_allreduce(state->cond, site, type, op, in, out);
    }
    return poise_coll_allreduce(coll, in, out, (size_t)number, type, op);
}

static int allreduce(const void *site, const void *in, void *out, int number,
                     MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    enum poise_coll_type t;
    enum poise_coll_op o;
    char given[8];
    struct poise_coll *coll = NULL;
    bool combines = can_combine(ALLREDUCE, type, op, &t, &o);
    bool records = !preload_inside && combines && record_wanted() &&
                   rules_fit(number, t, o);
    int code;
    if (records) {
        memcpy(given, in == MPI_IN_PLACE ? out : in, sizeof given);
    }
    if (combines) {
        coll = preload_trees(ALLREDUCE, comm, bytes_of(number, type));
    }
    if (coll) {
        preload_inside++;
        code = preload_result(ALLREDUCE, comm,
                              combine_all(coll, site,
                                          in == MPI_IN_PLACE ? out : in, out,
                                          number, t, o, comm));
    } else {
        code = PMPI_Allreduce(in, out, number, type, op, comm);
    }
    if (records && code == MPI_SUCCESS) {
        record_call(site, t, o, given, out);
    }
    return code;
}

EXPORT int MPI_Allreduce(const void *in, void *out, int number,
                         MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    const void *site =
        preload_site ? preload_site : __builtin_return_address(0);
    preload_site = NULL;
    return allreduce(site, in, out, number, type, op, comm);
}

EXPORT int MPI_Reduce(const void *in, void *out, int number, MPI_Datatype type,
                      MPI_Op op, int root, MPI_Comm comm)
{
    enum poise_coll_type t;
    enum poise_coll_op o;
    struct poise_coll *coll = NULL;
    if (can_combine(REDUCE, type, op, &t, &o)) {
        coll = preload_trees(REDUCE, comm, bytes_of(number, type));
    }
    if (!coll) {
        return PMPI_Reduce(in, out, number, type, op, root, comm);
    }
    preload_inside++;
    return preload_result(REDUCE, comm,
                          poise_coll_reduce(coll, root,
                                            in == MPI_IN_PLACE ? out : in, out,
                                            (size_t)number, t, o));
}

/* Where item `i` of `number` elements lies in a buffer of many. */
static void *item_at(void *buffer, int i, int number, MPI_Datatype type)
{
    MPI_Aint low = 0, extent = 0;
    PMPI_Type_get_extent(type, &low, &extent);
    return (char *)buffer + (MPI_Aint)i * number * extent;
}

/* From one rank's item to plain bytes. `whole`: the item of `rank` in a buffer
 * of all items, for a rank that passed MPI_IN_PLACE. */
struct item {
    const void *buffer;
    int number;
    MPI_Datatype type;
};

EXPORT int MPI_Gather(const void *in, int in_number, MPI_Datatype in_type,
                      void *out, int out_number, MPI_Datatype out_type,
                      int root, MPI_Comm comm)
{
    int rank = preload_inside ? -1 : rank_in(comm);
    struct item mine = {in, in_number, in_type};
    if (!preload_inside && in == MPI_IN_PLACE) {
        mine = (struct item){item_at(out, rank, out_number, out_type),
                             out_number, out_type};
    }
    uint64_t bytes = preload_inside ? 0 : bytes_of(mine.number, mine.type);
    struct poise_coll *coll = preload_trees(GATHER, comm, bytes);
    if (!coll) {
        return PMPI_Gather(in, in_number, in_type, out, out_number, out_type,
                           root, comm);
    }
    preload_inside++;
    struct plain from, to = {0};
    int all = size_of(comm) * (rank == root ? out_number : 0);
    int code = plain_make(&from, (void *)mine.buffer, mine.number, mine.type);
    if (code == 0 && rank == root) {
        code = plain_make(&to, out, all, out_type);
    }
    if (code == 0) {
        code = plain_pack(&from, mine.buffer, mine.number, mine.type, comm);
    }
    if (code == 0) {
        code = poise_coll_gather(coll, root, from.data, to.data, bytes);
    }
    if (code == 0 && rank == root) {
        code = plain_unpack(&to, out, all, out_type, comm);
    }
    free(from.packed);
    free(to.packed);
    return preload_result(GATHER, comm, code);
}

EXPORT int MPI_Scatter(const void *in, int in_number, MPI_Datatype in_type,
                       void *out, int out_number, MPI_Datatype out_type,
                       int root, MPI_Comm comm)
{
    int rank = preload_inside ? -1 : rank_in(comm);
    struct item mine = {out, out_number, out_type};
    if (!preload_inside && out == MPI_IN_PLACE) {
        mine = (struct item){item_at((void *)in, rank, in_number, in_type),
                             in_number, in_type};
    }
    uint64_t bytes = preload_inside ? 0 : bytes_of(mine.number, mine.type);
    struct poise_coll *coll = preload_trees(SCATTER, comm, bytes);
    if (!coll) {
        return PMPI_Scatter(in, in_number, in_type, out, out_number, out_type,
                            root, comm);
    }
    preload_inside++;
    struct plain from = {0}, to;
    int all = size_of(comm) * (rank == root ? in_number : 0);
    int code = plain_make(&to, (void *)mine.buffer, mine.number, mine.type);
    if (code == 0 && rank == root) {
        code = plain_make(&from, (void *)in, all, in_type);
    }
    if (code == 0 && rank == root) {
        code = plain_pack(&from, in, all, in_type, comm);
    }
    if (code == 0) {
        code = poise_coll_scatter(coll, root, from.data, to.data, bytes);
    }
    if (code == 0) {
        code = plain_unpack(&to, (void *)mine.buffer, mine.number, mine.type,
                            comm);
    }
    free(from.packed);
    free(to.packed);
    return preload_result(SCATTER, comm, code);
}

EXPORT int MPI_Allgather(const void *in, int in_number, MPI_Datatype in_type,
                         void *out, int out_number, MPI_Datatype out_type,
                         MPI_Comm comm)
{
    struct item mine = {in, in_number, in_type};
    if (!preload_inside && in == MPI_IN_PLACE) {
        mine = (struct item){item_at(out, rank_in(comm), out_number, out_type),
                             out_number, out_type};
    }
    uint64_t bytes = preload_inside ? 0 : bytes_of(mine.number, mine.type);
    struct poise_coll *coll = preload_trees(ALLGATHER, comm, bytes);
    if (!coll) {
        return PMPI_Allgather(in, in_number, in_type, out, out_number, out_type,
                              comm);
    }
    preload_inside++;
    struct plain from, to = {0};
    int all = size_of(comm) * out_number;
    int code = plain_make(&from, (void *)mine.buffer, mine.number, mine.type);
    if (code == 0) {
        code = plain_make(&to, out, all, out_type);
    }
    if (code == 0) {
        code = plain_pack(&from, mine.buffer, mine.number, mine.type, comm);
    }
    if (code == 0) {
        code = poise_coll_allgather(coll, from.data, to.data, bytes);
    }
    if (code == 0) {
        code = plain_unpack(&to, out, all, out_type, comm);
    }
    free(from.packed);
    free(to.packed);
    return preload_result(ALLGATHER, comm, code);
}

/* ---- from each to each -------------------------------------------------- */

/* A copy of what MPI_IN_PLACE means, as it is overwritten; owned. */
static void *copy_of(const void *out, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    if (copy && bytes > 0) {
        memcpy(copy, out, bytes);
    }
    return copy;
}

EXPORT int MPI_Alltoall(const void *in, int in_number, MPI_Datatype in_type,
                        void *out, int out_number, MPI_Datatype out_type,
                        MPI_Comm comm)
{
    uint64_t bytes = preload_inside ? 0 : bytes_of(out_number, out_type);
    struct poise_coll *coll = preload_trees(ALLTOALL, comm, bytes);
    if (!coll) {
        return PMPI_Alltoall(in, in_number, in_type, out, out_number, out_type,
                             comm);
    }
    preload_inside++;
    struct plain from = {0}, to = {0};
    bool in_place = in == MPI_IN_PLACE;
    int all = size_of(comm) * out_number;
    int in_all = in_place ? all : size_of(comm) * in_number;
    const void *source = in_place ? out : in;
    MPI_Datatype type = in_place ? out_type : in_type;
    int code = plain_make(&from, (void *)source, in_all, type);
    if (code == 0) {
        code = plain_make(&to, out, all, out_type);
    }
    if (code == 0) {
        code = plain_pack(&from, source, in_all, type, comm);
    }
    if (code == 0 && in_place && !from.packed) {
        from.packed = copy_of(out, from.bytes);
        from.data = from.packed;
        code = from.packed ? 0 : -ENOMEM;
    }
    if (code == 0) {
        code = poise_coll_alltoall(coll, from.data, to.data, bytes);
    }
    if (code == 0) {
        code = plain_unpack(&to, out, all, out_type, comm);
    }
    free(from.packed);
    free(to.packed);
    return preload_result(ALLTOALL, comm, code);
}

/* Blocks of elements, and where they lie as plain bytes. */
struct blocks {
    const int *numbers, *places;
    MPI_Datatype type;
    int count;
    struct poise_coll_block *at; /* [count], owned */
    char *data;
    char *packed; /* owned; NULL: data is the buffer itself */
    size_t packed_bytes;
};

/* `apart`: never in the buffer itself. */
static int blocks_make(struct blocks *blocks, void *buffer, bool apart)
{
    size_t at = 0;
    blocks->at = calloc((size_t)blocks->count, sizeof *blocks->at);
    if (!blocks->at) {
        return -ENOMEM;
    }
    apart = apart || !is_plain(blocks->type);
    uint64_t each = bytes_of(1, blocks->type);
    for (int i = 0; i < blocks->count; i++) {
        apart = apart || blocks->places[i] < 0;
    }
    for (int i = 0; i < blocks->count; i++) {
        size_t bytes = (size_t)blocks->numbers[i] * each;
        blocks->at[i] = (struct poise_coll_block){
            apart ? at : (size_t)blocks->places[i] * each, bytes};
        at += bytes;
    }
    blocks->data = buffer;
    if (apart) {
        blocks->packed_bytes = at;
        blocks->data = blocks->packed = malloc(at + 1);
    }
    return blocks->data || !apart ? 0 : -ENOMEM;
}

static void *element(const struct blocks *blocks, void *buffer, int i)
{
    MPI_Aint low = 0, extent = 0;
    PMPI_Type_get_extent(blocks->type, &low, &extent);
    return (char *)buffer + (MPI_Aint)blocks->places[i] * extent;
}

static int blocks_move(struct blocks *blocks, void *buffer, bool pack,
                       MPI_Comm comm)
{
    for (int i = 0; i < blocks->count && blocks->packed; i++) {
        int at = 0, code;
        char *there = blocks->packed + blocks->at[i].offset;
        int bytes = (int)blocks->at[i].bytes;
        if (bytes == 0) {
            continue;
        }
        code = pack ? PMPI_Pack(element(blocks, buffer, i), blocks->numbers[i],
                                blocks->type, there, bytes, &at, comm)
                    : PMPI_Unpack(there, bytes, &at, element(blocks, buffer, i),
                                  blocks->numbers[i], blocks->type, comm);
        if (code != MPI_SUCCESS) {
            return poise_error_set(EINVAL, "pack a message", NULL,
                                   "the MPI refused");
        }
    }
    return 0;
}

static void blocks_free(struct blocks *blocks)
{
    free(blocks->at);
    free(blocks->packed);
}

EXPORT int MPI_Alltoallv(const void *in, const int *in_numbers,
                         const int *in_places, MPI_Datatype in_type, void *out,
                         const int *out_numbers, const int *out_places,
                         MPI_Datatype out_type, MPI_Comm comm)
{
    /* Lengths differ between ranks: only the communicator may decide. */
    struct poise_coll *coll = preload_trees(ALLTOALL, comm, 0);
    if (!coll) {
        return PMPI_Alltoallv(in, in_numbers, in_places, in_type, out,
                              out_numbers, out_places, out_type, comm);
    }
    preload_inside++;
    bool in_place = in == MPI_IN_PLACE;
    struct blocks to = {.numbers = out_numbers,
                        .places = out_places,
                        .type = out_type,
                        .count = size_of(comm)};
    struct blocks from = {.numbers = in_numbers,
                          .places = in_places,
                          .type = in_type,
                          .count = to.count};
    void *source = (void *)in;
    if (in_place) {
        from = to;
        source = out;
    }
    int code = blocks_make(&from, source, in_place);
    if (code == 0) {
        code = blocks_make(&to, out, false);
    }
    if (code == 0) {
        code = blocks_move(&from, source, true, comm);
    }
    if (code == 0) {
        code = poise_coll_alltoallv(coll, from.data, from.at, to.data, to.at);
    }
    if (code == 0) {
        code = blocks_move(&to, out, false, comm);
    }
    blocks_free(&from);
    blocks_free(&to);
    return preload_result(ALLTOALL, comm, code);
}

/* ---- the end ------------------------------------------------------------ */

EXPORT int MPI_Comm_free(MPI_Comm *comm)
{
    if (!preload_inside) {
        preload_forget(*comm);
    }
    return PMPI_Comm_free(comm);
}

EXPORT int MPI_Comm_disconnect(MPI_Comm *comm)
{
    if (!preload_inside) {
        preload_forget(*comm);
    }
    return PMPI_Comm_disconnect(comm);
}

EXPORT int MPI_Finalize(void)
{
    preload_end();
    preload_report();
    preload_inside++;
    if (record_wanted() && record_write() < 0) {
        const struct poise_error *error = poise_error_last();
        dprintf(2, "poise: cannot %s '%s': %s\n", error->doing, error->what,
                error->why);
    }
    int code = PMPI_Finalize();
    preload_inside--;
    return code;
}
