/*
 * Parts of arrays: a block of one (subarray), or what a process holds of one
 * that is distributed (darray). Both grow dimension upon dimension, the
 * fastest first. Source: MPI 3.1, 4.1.3 and 4.1.4.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "make.h"

struct array {
    MPI_Datatype type; /* so far: one element of the next dimension; owned */
    int combiner;
    int *integers; /* what it was made of; owned */
    int count;
};

/* Which indices of a dimension belong to the part: blocks of `block`, the
 * first at `start`, one every `step`, as long as they begin before `end`. */
struct range {
    int start, end, block, step;
};

static int array_begin(struct array *array, int combiner, int integers,
                       MPI_Datatype old)
{
    *array = (struct array){.combiner = combiner};
    array->integers = poise_alloc((size_t)integers, sizeof(int));
    if (array->integers == NULL) {
        return MPI_ERR_NO_MEM;
    }
    array->type = type_hold(old);
    return MPI_SUCCESS;
}

static void array_remember(struct array *array, const int *values, int count)
{
    memcpy(array->integers + array->count, values, (size_t)count * sizeof(int));
    array->count += count;
}

static size_t range_blocks(const struct range *range)
{
    return range->start >= range->end
               ? 0
               : ((size_t)(range->end - 1 - range->start)) /
                         (size_t)range->step +
                     1;
}

/* One more dimension, `size` long, of which the part has a range. */
static int array_grow(struct array *array, int size, const struct range *range)
{
    ptrdiff_t extent = type_extent(array->type);
    size_t blocks = range_blocks(range);
    struct type_maker maker;
    int code = type_make_begin(&maker, array->combiner, 0, 0, 1, blocks);

    if (code != MPI_SUCCESS) {
        return code;
    }
    type_make_remember(&maker, array->type);
    for (size_t i = 0; i < blocks; i++) {
        ptrdiff_t at = range->start + (ptrdiff_t)i * range->step;
        ptrdiff_t left = range->end - at;
        type_make_place(&maker, array->type,
                        (size_t)(left < range->block ? left : range->block),
                        at * extent);
    }
    type_release(array->type);
    array->type = type_make_end(&maker);
    type_make_bounds(&maker, 0, size * extent);
    return MPI_SUCCESS;
}

/* Hand it over as a type that remembers how it was made, and of what. */
static int array_end(struct array *array, MPI_Datatype old, MPI_Datatype *out)
{
    struct type_maker maker;
    int code = type_make_begin(&maker, array->combiner, array->count, 0, 2, 0);

    if (code == MPI_SUCCESS) {
        type_make_remember(&maker, old);
        type_make_remember(&maker, array->type);
        /* The types that the plan is made of must stay, but the user does not
         * see them. */
        maker.type->hidden_types = 1;
        type_make_same(&maker, array->type);
        memcpy(maker.type->integers, array->integers,
               (size_t)array->count * sizeof(int));
        *out = maker.type;
    }
    return code;
}

static void array_free(struct array *array)
{
    type_release(array->type);
    free(array->integers);
}

/* Which dimension is the i-th fastest. */
static int fastest(int i, int ndims, int order)
{
    return order == MPI_ORDER_C ? ndims - 1 - i : i;
}

/* ---- a block of an array ------------------------------------------------ */

static int subarray_check(int ndims, const int *sizes, const int *subsizes,
                          const int *starts, int order, MPI_Datatype old)
{
    if (ndims < 1 || (order != MPI_ORDER_C && order != MPI_ORDER_FORTRAN)) {
        return MPI_ERR_ARG;
    }
    if (old == MPI_DATATYPE_NULL) {
        return MPI_ERR_TYPE;
    }
    for (int i = 0; i < ndims; i++) {
        if (sizes[i] < 1 || subsizes[i] < 0 || subsizes[i] > sizes[i] ||
            starts[i] < 0 || starts[i] > sizes[i] - subsizes[i]) {
            return MPI_ERR_ARG;
        }
    }
    return MPI_SUCCESS;
}

int MPI_Type_create_subarray(int ndims, const int array_of_sizes[],
                             const int array_of_subsizes[],
                             const int array_of_starts[], int order,
                             MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    struct array array = {0};
    int code = subarray_check(ndims, array_of_sizes, array_of_subsizes,
                              array_of_starts, order, oldtype);

    if (code != MPI_SUCCESS) {
        return type_fail("MPI_Type_create_subarray", code);
    }
    code = array_begin(&array, MPI_COMBINER_SUBARRAY, 3 * ndims + 2, oldtype);
    if (code != MPI_SUCCESS) {
        return type_fail("MPI_Type_create_subarray", code);
    }
    array_remember(&array, &ndims, 1);
    array_remember(&array, array_of_sizes, ndims);
    array_remember(&array, array_of_subsizes, ndims);
    array_remember(&array, array_of_starts, ndims);
    array_remember(&array, &order, 1);
    for (int i = 0; i < ndims && code == MPI_SUCCESS; i++) {
        int d = fastest(i, ndims, order);
        int end = array_of_starts[d] + array_of_subsizes[d];
        code = array_grow(&array, array_of_sizes[d],
                          &(struct range){.start = array_of_starts[d],
                                          .end = end,
                                          .block = INT_MAX,
                                          .step = INT_MAX});
    }
    if (code == MPI_SUCCESS) {
        code = array_end(&array, oldtype, newtype);
    }
    array_free(&array);
    return code == MPI_SUCCESS ? code
                               : type_fail("MPI_Type_create_subarray", code);
}

/* ---- what a process holds of a distributed array ------------------------ */

/* One dimension of a distributed array, on the process that is `place`-th of
 * `places` in it. */
static int darray_range(int size, int distribution, int argument, int places,
                        int place, struct range *out)
{
    int block = argument;

    if (size < 1 || places < 1) {
        return MPI_ERR_ARG;
    }
    switch (distribution) {
    case MPI_DISTRIBUTE_NONE:
        block = size;
        break;
    case MPI_DISTRIBUTE_BLOCK:
        if (argument == MPI_DISTRIBUTE_DFLT_DARG) {
            block = (size - 1) / places + 1;
        } else if (block < 1 || (long long)block * places < size) {
            return MPI_ERR_ARG;
        }
        break;
    case MPI_DISTRIBUTE_CYCLIC:
        if (argument == MPI_DISTRIBUTE_DFLT_DARG) {
            block = 1;
        }
        break;
    default:
        return MPI_ERR_ARG;
    }
    if (block < 1 || (distribution == MPI_DISTRIBUTE_NONE && places != 1)) {
        return MPI_ERR_ARG;
    }
    /* Whatever lies beyond the array is beyond INT_MAX just as well. */
    long long start = (long long)place * block;
    long long step = (long long)places * block;
    *out = (struct range){.start = start > size ? size : (int)start,
                          .end = size,
                          .block = block,
                          .step = step > INT_MAX ? INT_MAX : (int)step};
    return MPI_SUCCESS;
}

/* The array's dimensions one by one; the grid of processes is in C's order,
 * whatever that of the array is. */
static int darray_grow(struct array *array, int rank, int ndims,
                       const int *gsizes, const int *distribs, const int *dargs,
                       const int *psizes, int order)
{
    for (int i = 0; i < ndims; i++) {
        int d = fastest(i, ndims, order), slower = 1;
        struct range range;
        int code;
        for (int k = d + 1; k < ndims; k++) {
            slower *= psizes[k];
        }
        code = darray_range(gsizes[d], distribs[d], dargs[d], psizes[d],
                            rank / slower % psizes[d], &range);
        if (code == MPI_SUCCESS) {
            code = array_grow(array, gsizes[d], &range);
        }
        if (code != MPI_SUCCESS) {
            return code;
        }
    }
    return MPI_SUCCESS;
}

static int darray_check(int size, int rank, int ndims, const int *psizes,
                        int order, MPI_Datatype old)
{
    long long processes = 1;

    if (old == MPI_DATATYPE_NULL) {
        return MPI_ERR_TYPE;
    }
    if (ndims < 1 || rank < 0 || rank >= size ||
        (order != MPI_ORDER_C && order != MPI_ORDER_FORTRAN)) {
        return MPI_ERR_ARG;
    }
    for (int i = 0; i < ndims; i++) {
        if (psizes[i] < 1 || processes > size) {
            return MPI_ERR_ARG;
        }
        processes *= psizes[i];
    }
    return processes == size ? MPI_SUCCESS : MPI_ERR_ARG;
}

int MPI_Type_create_darray(int size, int rank, int ndims,
                           const int array_of_gsizes[],
                           const int array_of_distribs[],
                           const int array_of_dargs[],
                           const int array_of_psizes[], int order,
                           MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    const int head[] = {size, rank, ndims};
    struct array array = {0};
    int code = darray_check(size, rank, ndims, array_of_psizes, order, oldtype);

    if (code != MPI_SUCCESS) {
        return type_fail("MPI_Type_create_darray", code);
    }
    code = array_begin(&array, MPI_COMBINER_DARRAY, 4 * ndims + 4, oldtype);
    if (code != MPI_SUCCESS) {
        return type_fail("MPI_Type_create_darray", code);
    }
    array_remember(&array, head, 3);
    array_remember(&array, array_of_gsizes, ndims);
    array_remember(&array, array_of_distribs, ndims);
    array_remember(&array, array_of_dargs, ndims);
    array_remember(&array, array_of_psizes, ndims);
    array_remember(&array, &order, 1);
    code = darray_grow(&array, rank, ndims, array_of_gsizes, array_of_distribs,
                       array_of_dargs, array_of_psizes, order);
    if (code == MPI_SUCCESS) {
        code = array_end(&array, oldtype, newtype);
    }
    array_free(&array);
    return code == MPI_SUCCESS ? code
                               : type_fail("MPI_Type_create_darray", code);
}
