/*
 * libpoise-coll-MPI.so: a preload that takes over the collectives of an
 * unchanged, dynamically linked MPI program. Compiled once against each MPI.
 *
 * A communicator gets a Poise world and trees of its own when the first of its
 * collectives comes by. Tree or library is chosen only from what MPI makes
 * equal on all ranks: the communicator, the number of bytes, and, in
 * reductions, type and operation. Types that may differ between ranks are
 * packed. All else falls through to the library and is counted, and so do
 * arguments that it would refuse (check.c).
 *
 * Environment: POISE_COLL_MAX, the longest message that goes over trees
 * (bytes, K and M allowed; unless it is said, 64 KiB where long vectors cannot
 * stay where they are, see poise_coll_is_direct, else any);
 * POISE_COLL_REPORT=1, counts on standard error when MPI is finalised;
 * POISE_TREE, as for poise_coll_create; POISE_COLL_RULES, call sites that are
 * made conditional (rules.c); POISE_COLL_RECORD, where to write what rules
 * could be made of (record.c). What cannot be used of these ends the job.
 */
#include "check.h"
#include "communicator.h"
#include "plain.h"
#include "rules.h"
#include "types.h"

#include <poise/comm.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__thread const void *preload_site;

#define EXPORT __attribute__((visibility("default")))

/* ---- whose turn it is --------------------------------------------------- */

/* Both are the same on all ranks. */
static bool can_combine(MPI_Datatype type, MPI_Op op, enum poise_coll_type *t,
                        enum poise_coll_op *o)
{
    if (!preload_type_of(type, t) || !preload_op_of(op, o)) {
        return false;
    }
    bool real = *t == POISE_FLOAT || *t == POISE_DOUBLE;
    return !real || *o <= POISE_OP_MAX;
}

/* The trees for a call whose arguments are right or not. What moves nothing
 * needs no tree, and the library has still something to say of it. */
static struct poise_coll *trees_for(enum entry entry, struct seat *seat,
                                    bool right, uint64_t bytes)
{
    if (!right || bytes == 0) {
        preload_count(entry, right ? EMPTY : WRONG);
        return NULL;
    }
    return preload_trees(entry, seat, bytes);
}

/* ---- barrier and broadcast ---------------------------------------------- */

EXPORT int MPI_Barrier(MPI_Comm comm)
{
    struct seat seat = {0};
    struct poise_coll *coll = NULL;
    if (preload_sit(BARRIER, comm, &seat)) {
        coll = preload_trees(BARRIER, &seat, 0);
    }
    if (!coll) {
        return seat.code ? seat.code : PMPI_Barrier(comm);
    }
    preload_inside++;
    return preload_result(BARRIER, comm, poise_coll_barrier(coll));
}

EXPORT int MPI_Bcast(void *buffer, int number, MPI_Datatype type, int root,
                     MPI_Comm comm)
{
    const struct side side = {buffer, number, type};
    struct seat seat = {0};
    struct poise_coll *coll = NULL;
    struct plain plain;
    uint64_t bytes = 0;
    if (preload_sit(BCAST, comm, &seat)) {
        bool right = check_bcast(&seat, &side, root, &bytes);
        coll = trees_for(BCAST, &seat, right, bytes);
    }
    if (!coll) {
        return seat.code ? seat.code
                         : PMPI_Bcast(buffer, number, type, root, comm);
    }
    preload_inside++;
    bool mine = seat.rank == root;
    int code = plain_make(&plain, buffer, (uint64_t)number, type, false);
    if (code == 0 && mine) {
        code = plain_pack(&plain, buffer, (uint64_t)number, type);
    }
    if (code == 0) {
        code = poise_coll_broadcast(coll, root, plain.data, plain.bytes);
    }
    if (code == 0 && !mine) {
        code = plain_unpack(&plain, buffer, (uint64_t)number, type);
    }
    plain_free(&plain);
    return preload_result(BCAST, comm, code);
}

/* ---- reductions --------------------------------------------------------- */

/* An allreduce over trees, or what a rule says. */
static int combine_all(const struct seat *seat, const void *site,
                       const void *in, void *out, int number,
                       enum poise_coll_type type, enum poise_coll_op op)
{
    const struct state *state = seat->state;
    if (state->cond && rules_exist() && rules_fit(number, type, op)) {
        return rules_allreduce(state->cond, site, type, op, in, out);
    }
    return poise_coll_allreduce(state->coll, in, out, (size_t)number, type, op);
}

static int allreduce(const void *site, const void *in, void *out, int number,
                     MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    const struct side side = {out, number, type};
    const void *from = in == MPI_IN_PLACE ? out : in;
    enum poise_coll_type t;
    enum poise_coll_op o;
    char given[8];
    struct seat seat = {0};
    struct poise_coll *coll = NULL;
    uint64_t bytes = 0;
    bool records = false;
    int code;
    if (preload_sit(ALLREDUCE, comm, &seat)) {
        bool combines = can_combine(type, op, &t, &o);
        bool right = combines && check_reduce(&seat, in, &side, -1, &bytes);
        records = right && record_wanted() && rules_fit(number, t, o);
        if (combines) {
            coll = trees_for(ALLREDUCE, &seat, right, bytes);
        } else {
            preload_count(ALLREDUCE, TYPE);
        }
    }
    if (records) {
        memcpy(given, from, sizeof given);
    }
    if (coll) {
        preload_inside++;
        code = preload_result(
            ALLREDUCE, comm, combine_all(&seat, site, from, out, number, t, o));
    } else {
        code = seat.code ? seat.code
                         : PMPI_Allreduce(in, out, number, type, op, comm);
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
    const struct side side = {out, number, type};
    enum poise_coll_type t;
    enum poise_coll_op o;
    struct seat seat = {0};
    struct poise_coll *coll = NULL;
    uint64_t bytes = 0;
    /* A root of -1 would say that all have the result. */
    if (preload_sit(REDUCE, comm, &seat)) {
        if (can_combine(type, op, &t, &o)) {
            bool right =
                root >= 0 && check_reduce(&seat, in, &side, root, &bytes);
            coll = trees_for(REDUCE, &seat, right, bytes);
        } else {
            preload_count(REDUCE, TYPE);
        }
    }
    if (!coll) {
        return seat.code ? seat.code
                         : PMPI_Reduce(in, out, number, type, op, root, comm);
    }
    preload_inside++;
    return preload_result(REDUCE, comm,
                          poise_coll_reduce(coll, root,
                                            in == MPI_IN_PLACE ? out : in, out,
                                            (size_t)number, t, o));
}

/* ---- items -------------------------------------------------------------- */

/* The items of all ranks in a buffer, `bytes` of each rank's as the tree moves
 * them. A rank whose buffer has items of another length takes part as the
 * others do; what that means is its own error. */
struct items {
    struct side all;
    int size;
    uint64_t bytes;
    struct plain plain;
    bool differ;
};

static int items_make(struct items *items)
{
    uint64_t each = plain_bytes(items->all.type);
    uint64_t number = (uint64_t)items->all.number;
    items->differ = number * each != items->bytes;
    if (!items->differ) {
        return plain_make(&items->plain, items->all.buffer,
                          number * (uint64_t)items->size, items->all.type,
                          false);
    }
    return plain_make(&items->plain, NULL, items->bytes * (uint64_t)items->size,
                      MPI_BYTE, true);
}

static int items_move(const struct items *items, bool pack)
{
    const struct side *all = &items->all;
    uint64_t each = plain_bytes(all->type), number = (uint64_t)all->number;
    void *buffer = (void *)(uintptr_t)all->buffer;
    if (!items->plain.packed) {
        return 0;
    }
    if (!items->differ) {
        return plain_move(pack, items->plain.packed, buffer,
                          number * (uint64_t)items->size, all->type);
    }
    int code = 0;
    uint64_t fits = each > 0 ? items->bytes / each : 0;
    for (int i = 0; i < items->size && code == 0; i++) {
        code = plain_move(
            pack, (char *)items->plain.packed + (uint64_t)i * items->bytes,
            plain_at(buffer, (int64_t)i * all->number, all->type),
            fits < number ? fits : number, all->type);
    }
    return code == 0 && fits > number ? MPI_ERR_TRUNCATE : code;
}

/* The item of this rank, which may be the one among all. */
static struct side item_of(const struct seat *seat, const struct side *one,
                           const struct side *all)
{
    if (one->buffer != MPI_IN_PLACE) {
        return *one;
    }
    return (struct side){
        plain_at(all->buffer, (int64_t)seat->rank * all->number, all->type),
        all->number, all->type};
}

/* Gather (`root`), or allgather (-1). */
static int collect(struct poise_coll *coll, const struct seat *seat,
                   const struct side *in, const struct side *out, int root,
                   uint64_t bytes)
{
    bool has_all = root < 0 || seat->rank == root;
    struct side one = item_of(seat, in, out);
    struct items items = {.all = *out, .size = seat->size, .bytes = bytes};
    struct plain from;
    int code =
        plain_make(&from, one.buffer, (uint64_t)one.number, one.type, false);
    if (code == 0 && has_all) {
        code = items_make(&items);
    }
    if (code == 0) {
        code = plain_pack(&from, one.buffer, (uint64_t)one.number, one.type);
    }
    if (code == 0) {
        code = root < 0 ? poise_coll_allgather(coll, from.data,
                                               items.plain.data, bytes)
                        : poise_coll_gather(coll, root, from.data,
                                            items.plain.data, bytes);
    }
    if (code == 0 && has_all) {
        code = items_move(&items, false);
    }
    plain_free(&from);
    plain_free(&items.plain);
    return code;
}

EXPORT int MPI_Gather(const void *in, int in_number, MPI_Datatype in_type,
                      void *out, int out_number, MPI_Datatype out_type,
                      int root, MPI_Comm comm)
{
    const struct side one = {in, in_number, in_type};
    const struct side all = {out, out_number, out_type};
    struct seat seat = {0};
    struct poise_coll *coll = NULL;
    uint64_t bytes = 0;
    if (preload_sit(GATHER, comm, &seat)) {
        bool right = check_items(&seat, GATHER, &one, &all, root, &bytes);
        coll = trees_for(GATHER, &seat, right, bytes);
    }
    if (!coll) {
        return seat.code ? seat.code
                         : PMPI_Gather(in, in_number, in_type, out, out_number,
                                       out_type, root, comm);
    }
    preload_inside++;
    return preload_result(GATHER, comm,
                          collect(coll, &seat, &one, &all, root, bytes));
}

EXPORT int MPI_Allgather(const void *in, int in_number, MPI_Datatype in_type,
                         void *out, int out_number, MPI_Datatype out_type,
                         MPI_Comm comm)
{
    const struct side one = {in, in_number, in_type};
    const struct side all = {out, out_number, out_type};
    struct seat seat = {0};
    struct poise_coll *coll = NULL;
    uint64_t bytes = 0;
    if (preload_sit(ALLGATHER, comm, &seat)) {
        bool right = check_items(&seat, ALLGATHER, &one, &all, -1, &bytes);
        coll = trees_for(ALLGATHER, &seat, right, bytes);
    }
    if (!coll) {
        return seat.code ? seat.code
                         : PMPI_Allgather(in, in_number, in_type, out,
                                          out_number, out_type, comm);
    }
    preload_inside++;
    return preload_result(ALLGATHER, comm,
                          collect(coll, &seat, &one, &all, -1, bytes));
}

static int spread(struct poise_coll *coll, const struct seat *seat,
                  const struct side *in, const struct side *out, int root,
                  uint64_t bytes)
{
    struct side one = item_of(seat, out, in);
    struct items items = {.all = *in, .size = seat->size, .bytes = bytes};
    struct plain to;
    uint64_t own = (uint64_t)one.number * plain_bytes(one.type);
    bool differ = own != bytes;
    int code = differ ? plain_make(&to, NULL, bytes, MPI_BYTE, true)
                      : plain_make(&to, one.buffer, (uint64_t)one.number,
                                   one.type, false);
    if (code == 0 && seat->rank == root) {
        code = items_make(&items);
    }
    if (code == 0 && seat->rank == root) {
        code = items_move(&items, true);
    }
    if (code == 0) {
        code = poise_coll_scatter(coll, root, items.plain.data, to.data, bytes);
    }
    if (code == 0 && !differ) {
        code = plain_unpack(&to, (void *)(uintptr_t)one.buffer,
                            (uint64_t)one.number, one.type);
    }
    plain_free(&to);
    plain_free(&items.plain);
    return code == 0 && differ && own < bytes ? MPI_ERR_TRUNCATE : code;
}

EXPORT int MPI_Scatter(const void *in, int in_number, MPI_Datatype in_type,
                       void *out, int out_number, MPI_Datatype out_type,
                       int root, MPI_Comm comm)
{
    const struct side all = {in, in_number, in_type};
    const struct side one = {out, out_number, out_type};
    struct seat seat = {0};
    struct poise_coll *coll = NULL;
    uint64_t bytes = 0;
    if (preload_sit(SCATTER, comm, &seat)) {
        bool right = check_items(&seat, SCATTER, &one, &all, root, &bytes);
        coll = trees_for(SCATTER, &seat, right, bytes);
    }
    if (!coll) {
        return seat.code ? seat.code
                         : PMPI_Scatter(in, in_number, in_type, out, out_number,
                                        out_type, root, comm);
    }
    preload_inside++;
    return preload_result(SCATTER, comm,
                          spread(coll, &seat, &all, &one, root, bytes));
}

/* ---- the beginning and the end ------------------------------------------ */

EXPORT int MPI_Init(int *argc, char ***argv)
{
    int code = PMPI_Init(argc, argv);
    if (code == MPI_SUCCESS) {
        preload_begin();
    }
    return code;
}

EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int code = PMPI_Init_thread(argc, argv, required, provided);
    if (code == MPI_SUCCESS) {
        preload_begin();
    }
    return code;
}

/* Whether the library will really free it, and not refuse. */
static bool can_end(const MPI_Comm *comm)
{
    return !preload_inside && comm && *comm != MPI_COMM_NULL &&
           *comm != MPI_COMM_WORLD && *comm != MPI_COMM_SELF;
}

EXPORT int MPI_Comm_free(MPI_Comm *comm)
{
    if (can_end(comm)) {
        preload_forget(*comm);
    }
    return PMPI_Comm_free(comm);
}

EXPORT int MPI_Comm_disconnect(MPI_Comm *comm)
{
    if (can_end(comm)) {
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
        preload_say_error("");
    }
    int code = PMPI_Finalize();
    preload_inside--;
    return code;
}
