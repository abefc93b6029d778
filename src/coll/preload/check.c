/*
 * The checks of Open MPI 4.1 and MPICH 4.0, as they differ: a call that one
 * rank gives to its library, which then accepts it, would wait there for ranks
 * that are elsewhere. So nothing is refused here that the library would let
 * pass and communicate.
 */
#include "check.h"
#include "plain.h"

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

bool check_bcast(const struct seat *seat, const struct side *data, int root,
                 uint64_t *bytes)
{
    return is_root(seat, root) && data->buffer != MPI_IN_PLACE &&
           is_right(data, bytes);
}

static bool is_alias(const void *in, const struct side *out, bool for_all)
{
    /* Open MPI lets one value of an allreduce pass. */
    int least = IS_OMPI && for_all ? 2 : 1;
    return in == out->buffer && out->number >= least &&
           !(IS_OMPI && for_all && in == MPI_BOTTOM) && refuses_aliases();
}

bool check_reduce(const struct seat *seat, const void *in,
                  const struct side *out, int root, uint64_t *bytes)
{
    bool for_all = root == -1;
    bool wants = for_all || seat->rank == root;
    const struct side from = {in, out->number, out->type};
    if (!for_all && !is_root(seat, root)) {
        return false;
    }
    if (in == MPI_IN_PLACE ? !wants : !is_right(&from, bytes)) {
        return false;
    }
    return !wants || (out->buffer != MPI_IN_PLACE && is_right(out, bytes) &&
                      !is_alias(in, out, for_all));
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

bool check_items(const struct seat *seat, enum entry entry,
                 const struct side *one, const struct side *all, int root,
                 uint64_t *bytes)
{
    bool for_all = entry == ALLGATHER;
    bool has_all = for_all || seat->rank == root;
    bool in_place = one->buffer == MPI_IN_PLACE;
    uint64_t of_one = 0, of_all = 0;
    if ((!for_all && !is_root(seat, root)) || (in_place && !has_all) ||
        (has_all && all->buffer == MPI_IN_PLACE)) {
        return false;
    }
    if ((!in_place && !is_right(one, &of_one)) ||
        (has_all && !is_right(all, &of_all))) {
        return false;
    }
    if (!in_place && has_all && is_item_alias(seat, one, all)) {
        return false;
    }
    *bytes = in_place || (has_all && entry == SCATTER) ? of_all : of_one;
    return true;
}

bool check_alltoall(const struct side *in, const struct side *out,
                    uint64_t *bytes)
{
    uint64_t from = 0;
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

static bool are_right(const struct seat *seat, const struct sides *sides)
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

bool check_alltoallv(const struct seat *seat, const struct sides *in,
                     const struct sides *out)
{
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
