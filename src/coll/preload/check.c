/*
 * The checks of Open MPI 4.1 and MPICH 4.0, as they differ: a call that one
 * rank gives to its library, which then accepts it, would wait there for ranks
 * that are elsewhere. So nothing is refused here that the library would let
 * pass and communicate.
 */
#include "check.h"
#include "plain.h"
#include "types.h"

#if defined(OPEN_MPI)
enum { IS_OMPI = 1 };
#else
enum { IS_OMPI = 0 };
#endif

/* ---- elements ----------------------------------------------------------- */

/* Packing nothing of a type is refused if it is not committed. */
static bool is_committed(MPI_Datatype type)
{
    char nothing[8];
    int at = 0;
    return plain_type(type) ||
           PMPI_Pack(nothing, 0, type, nothing, sizeof nothing, &at,
                     preload_quiet()) == MPI_SUCCESS;
}

/* MPICH: elements at address 0, which no type moves elsewhere. */
static bool is_nowhere(const void *buffer, MPI_Datatype type)
{
    MPI_Aint low = 0, extent = 0;
    return !IS_OMPI && !buffer &&
           (plain_type(type) ||
            (PMPI_Type_get_true_extent(type, &low, &extent) == MPI_SUCCESS &&
             low == 0));
}

static bool is_right(const struct side *side, uint64_t *bytes)
{
    if (side->number < 0 || side->type == MPI_DATATYPE_NULL ||
        !is_committed(side->type)) {
        return false;
    }
    *bytes = (uint64_t)side->number * plain_bytes(side->type);
    return *bytes == 0 || !is_nowhere(side->buffer, side->type);
}

static bool is_root(const struct seat *seat, int root)
{
    return root >= 0 && root < seat->size;
}

/* Whether this library refuses a result where the values are: MPICH can be told
 * not to. (Open MPI's refusal would be heard by MPI_COMM_WORLD's handler.) */
static bool refuses_aliases(void)
{
    static int known; /* 0: not yet, 1: no, 2: yes; __atomic access */
    int now = IS_OMPI ? 2 : __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (now == 0) {
        int values[2] = {0};
        now = PMPI_Allreduce(values, values, 2, MPI_INT, MPI_SUM,
                             preload_quiet()) == MPI_SUCCESS
                  ? 1
                  : 2;
        __atomic_store_n(&known, now, __ATOMIC_RELAXED);
    }
    return now == 2;
}

/* ---- calls -------------------------------------------------------------- */

bool check_barrier(const struct seat *seat, const struct call *call,
                   uint64_t *bytes)
{
    (void)seat;
    (void)call;
    *bytes = 0;
    return true;
}

bool check_bcast(const struct seat *seat, const struct call *call,
                 uint64_t *bytes)
{
    return is_root(seat, call->root) && call->in.buffer != MPI_IN_PLACE &&
           is_right(&call->in, bytes);
}

/* A result where the values are. */
static bool is_alias(const struct call *call, uint64_t bytes)
{
    if (call->in.buffer != call->out.buffer || bytes == 0) {
        return false;
    }
    /* Open MPI looks at two calls only, and lets one value of an allreduce
     * pass. */
    bool all = call->entry == ALLREDUCE;
    if (IS_OMPI && (all ? call->out.number < 2 || !call->in.buffer
                        : call->entry != REDUCE)) {
        return false;
    }
    return refuses_aliases();
}

/* The values of a reduction, of a type that plain_type knows. */
static bool has_values(const void *buffer, uint64_t bytes)
{
    return IS_OMPI || buffer || bytes == 0;
}

bool check_reduce(const struct seat *seat, const struct call *call,
                  uint64_t *bytes)
{
    bool rooted = call->entry == REDUCE;
    bool wants = !rooted || seat->rank == call->root;
    bool in_place = call->in.buffer == MPI_IN_PLACE;
    uint64_t count = 0;
    if ((rooted && !is_root(seat, call->root)) || (in_place && !wants)) {
        return false;
    }
    if (call->entry == REDUCE_SCATTER) {
        for (int i = 0; i < seat->size; i++) {
            if (!call->out.numbers || call->out.numbers[i] < 0) {
                return false;
            }
            count += (uint64_t)call->out.numbers[i];
        }
    } else if (call->out.number < 0) {
        return false;
    } else {
        count =
            (uint64_t)call->out.number *
            (call->entry == REDUCE_SCATTER_BLOCK ? (uint64_t)seat->size : 1);
    }
    *bytes = count * preload_width_of(call->out.type);
    if (!in_place && !has_values(call->in.buffer, *bytes)) {
        return false;
    }
    bool gets = wants && !(call->entry == EXSCAN && seat->rank == 0);
    return !gets ||
           (call->out.buffer != MPI_IN_PLACE &&
            has_values(call->out.buffer, *bytes) && !is_alias(call, *bytes));
}

/* MPICH: the own item is where it belongs. */
static bool is_item_alias(const struct seat *seat, const struct side *one,
                          const struct side *all)
{
    return !IS_OMPI && one->type == all->type && one->number == all->number &&
           one->number > 0 && refuses_aliases() &&
           (uintptr_t)one->buffer ==
               (uintptr_t)all->buffer + (uintptr_t)seat->rank *
                                            (uintptr_t)all->number *
                                            plain_bytes(all->type);
}

/* What all calls of items have in common: which is the one, and which are all
 * of them; whether this rank has all. */
struct items {
    const struct side *one, *all;
    bool has_all, in_place;
};

static bool find_items(const struct seat *seat, const struct call *call,
                       struct items *out)
{
    bool from_one = call->entry == SCATTER || call->entry == SCATTERV;
    bool for_all = call->entry == ALLGATHER || call->entry == ALLGATHERV;
    struct items items = {.one = from_one ? &call->out : &call->in,
                          .all = from_one ? &call->in : &call->out,
                          .has_all = for_all || seat->rank == call->root};
    items.in_place = items.one->buffer == MPI_IN_PLACE;
    *out = items;
    return (for_all || is_root(seat, call->root)) &&
           !(items.in_place && !items.has_all) &&
           !(items.has_all && items.all->buffer == MPI_IN_PLACE);
}

bool check_items(const struct seat *seat, const struct call *call,
                 uint64_t *bytes)
{
    struct items items;
    uint64_t of_one = 0, of_all = 0;
    if (!find_items(seat, call, &items) ||
        (!items.in_place && !is_right(items.one, &of_one)) ||
        (items.has_all && !is_right(items.all, &of_all)) ||
        (!items.in_place && items.has_all &&
         is_item_alias(seat, items.one, items.all))) {
        return false;
    }
    *bytes = items.in_place || (items.has_all && call->entry == SCATTER)
                 ? of_all
                 : of_one;
    return true;
}

bool check_alltoall(const struct seat *seat, const struct call *call,
                    uint64_t *bytes)
{
    const struct side *in = &call->in, *out = &call->out;
    uint64_t from = 0;
    (void)seat;
    if (out->buffer == MPI_IN_PLACE || !is_right(out, bytes)) {
        return false;
    }
    if (in->buffer == MPI_IN_PLACE) {
        return true;
    }
    return is_right(in, &from) && from == *bytes &&
           !(!IS_OMPI && in->buffer == out->buffer && in->type == out->type &&
             in->number == out->number && in->number > 0 && refuses_aliases());
}

static bool are_right(const struct seat *seat, const struct side *sides)
{
    if (!sides->numbers || !sides->places || sides->type == MPI_DATATYPE_NULL ||
        !is_committed(sides->type)) {
        return false;
    }
    bool nowhere = is_nowhere(sides->buffer, sides->type);
    for (int i = 0; i < seat->size; i++) {
        if (sides->numbers[i] < 0 ||
            (nowhere && sides->numbers[i] > 0 && sides->places[i] == 0)) {
            return false;
        }
    }
    return true;
}

bool check_alltoallv(const struct seat *seat, const struct call *call,
                     uint64_t *bytes)
{
    const struct side *in = &call->in, *out = &call->out;
    *bytes = 0;
    if (out->buffer == MPI_IN_PLACE || !are_right(seat, out)) {
        return false;
    }
    if (in->buffer == MPI_IN_PLACE) {
        return true;
    }
    return are_right(seat, in) &&
           plain_bytes(in->type) * (uint64_t)in->numbers[seat->rank] ==
               plain_bytes(out->type) * (uint64_t)out->numbers[seat->rank] &&
           !(!IS_OMPI && in->buffer == out->buffer && in->type == out->type &&
             in->numbers == out->numbers && refuses_aliases());
}

/* MPICH: the own block is where it belongs. */
static bool is_block_alias(const struct seat *seat, const struct items *items)
{
    const struct side *one = items->one, *all = items->all;
    return !IS_OMPI && one->type == all->type && one->number > 0 &&
           all->numbers[seat->rank] > 0 && refuses_aliases() &&
           one->buffer ==
               plain_at(all->buffer, all->places[seat->rank], all->type);
}

bool check_blocks(const struct seat *seat, const struct call *call,
                  uint64_t *bytes)
{
    struct items items;
    uint64_t of_one = 0, sum = 0;
    if (!find_items(seat, call, &items) ||
        (!items.in_place && !is_right(items.one, &of_one)) ||
        (items.has_all && !are_right(seat, items.all)) ||
        (!items.in_place && items.has_all && is_block_alias(seat, &items))) {
        return false;
    }
    for (int i = 0; call->entry == ALLGATHERV && i < seat->size; i++) {
        sum += (uint64_t)items.all->numbers[i] * plain_bytes(items.all->type);
    }
    /* Of another length than its place is, which the library may forgive. */
    uint64_t size = (uint64_t)seat->size;
    *bytes = (sum + size - 1) / size;
    return true;
}
