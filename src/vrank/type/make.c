/*
 * Putting derived types together, and taking them apart. Parts are placed one
 * by one, and what is known of the whole is worked out on the way. Source: MPI
 * 3.1, 4.1.
 */
#include <stdlib.h>
#include <string.h>

#include "make.h"

MPI_Datatype type_hold(MPI_Datatype type)
{
    if (!type->predefined) {
        __atomic_add_fetch(&type->references, 1, __ATOMIC_RELAXED);
    }
    return type;
}

void type_release(MPI_Datatype type)
{
    if (type == NULL || type->predefined ||
        __atomic_sub_fetch(&type->references, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    for (int i = 0; i < type->type_count; i++) {
        type_release(type->types[i]);
    }
    free(type->types);
    free(type->addresses);
    free(type->integers);
    free(type->nodes);
    free(type->attributes);
    free(type->name);
    free(type);
}

int type_make_begin(struct type_maker *maker, int combiner, int integers,
                    int addresses, int types, size_t parts)
{
    MPI_Datatype type = poise_alloc(1, sizeof *type);

    *maker = (struct type_maker){.type = type};
    if (type == NULL) {
        return MPI_ERR_NO_MEM;
    }
    *type = (struct poise_mpi_datatype){
        .references = 1,
        .align = 1,
        .combiner = combiner,
        .integers = poise_alloc((size_t)integers + 1, sizeof(int)),
        .addresses = poise_alloc((size_t)addresses + 1, sizeof(MPI_Aint)),
        .types = poise_alloc((size_t)types + 1, sizeof(MPI_Datatype)),
        .nodes = poise_alloc(parts + 1, sizeof(struct type_node)),
        .integer_count = integers,
        .address_count = addresses};
    if (type->integers == NULL || type->addresses == NULL ||
        type->types == NULL || type->nodes == NULL) {
        type_release(type);
        return MPI_ERR_NO_MEM;
    }
    return MPI_SUCCESS;
}

void type_make_remember(struct type_maker *maker, MPI_Datatype old)
{
    maker->type->types[maker->type->type_count++] = type_hold(old);
}

/* Widen [*lb, *ub) by [low, high). */
static void widen(bool *has, ptrdiff_t *lb, ptrdiff_t *ub, ptrdiff_t low,
                  ptrdiff_t high)
{
    if (!*has || low < *lb) {
        *lb = low;
    }
    if (!*has || high > *ub) {
        *ub = high;
    }
    *has = true;
}

/* The bounds of `count` elements of `old` at `offset`. */
static void place_bounds(struct type_maker *maker, MPI_Datatype old,
                         size_t count, ptrdiff_t offset)
{
    ptrdiff_t last = (ptrdiff_t)(count - 1) * type_extent(old);
    ptrdiff_t low = offset + (last < 0 ? last : 0);
    ptrdiff_t high = offset + (last > 0 ? last : 0);
    struct poise_mpi_datatype *type = maker->type;

    if (old->has_lb && (!type->has_lb || low + old->lb < maker->mark_lb)) {
        maker->mark_lb = low + old->lb;
        type->has_lb = true;
    }
    if (old->has_ub && (!type->has_ub || high + old->ub > maker->mark_ub)) {
        maker->mark_ub = high + old->ub;
        type->has_ub = true;
    }
    if (old->elements > 0) {
        widen(&maker->has_data, &maker->data_lb, &maker->data_ub, low + old->lb,
              high + old->ub);
        widen(&maker->has_true, &type->true_lb, &type->true_ub,
              low + old->true_lb, high + old->true_ub);
    }
}

void type_make_place(struct type_maker *maker, MPI_Datatype old, size_t count,
                     ptrdiff_t offset)
{
    struct poise_mpi_datatype *type = maker->type;
    struct type_node part = type_node_loop(&old->root, count, type_extent(old));

    type->nodes[maker->placed++] = type_node_moved(&part, offset);
    if (count == 0) {
        return;
    }
    place_bounds(maker, old, count, offset);
    if (old->elements > 0) {
        type->basic = type->elements == 0 || type->basic == old->basic
                          ? old->basic
                          : TYPE_NONE;
        type->elements += count * old->elements;
        type->size += count * old->size;
    }
    if (old->align > type->align) {
        type->align = old->align;
    }
}

/* Stretch bounds over `length` more bytes, to whichever side. */
static void stretch(ptrdiff_t *lb, ptrdiff_t *ub, ptrdiff_t length)
{
    if (length < 0) {
        *lb += length;
    } else {
        *ub += length;
    }
}

void type_make_repeat(struct type_maker *maker, size_t count, ptrdiff_t stride)
{
    struct poise_mpi_datatype *type = maker->type;
    ptrdiff_t length = (ptrdiff_t)(count - 1) * stride;

    /* The part stays at nodes[0], and the loop over it becomes the only one
     * of the list, at nodes[1]. */
    type->nodes[1] = type_node_loop(&type->nodes[0], count, stride);
    maker->first = 1;
    maker->placed = 2;
    type->elements *= count;
    type->size *= count;
    stretch(&maker->data_lb, &maker->data_ub, length);
    stretch(&maker->mark_lb, &maker->mark_ub, length);
    stretch(&type->true_lb, &type->true_ub, length);
}

/* What a structure of C would add behind the last member. */
static ptrdiff_t padding(const struct poise_mpi_datatype *type)
{
    ptrdiff_t over = (type->ub - type->lb) % type->align;

    return over == 0 ? 0 : type->align - over;
}

static bool is_dense(const struct poise_mpi_datatype *type)
{
    return type->lb == 0 && type_extent(type) == (ptrdiff_t)type->size &&
           (type->root.kind == TYPE_EMPTY ||
            (type->root.kind == TYPE_BLOCK && type->root.offset == 0));
}

MPI_Datatype type_make_end(struct type_maker *maker)
{
    struct poise_mpi_datatype *type = maker->type;

    type->root = type_node_list(type->nodes + maker->first,
                                maker->placed - maker->first);
    type->lb = type->has_lb ? maker->mark_lb : maker->data_lb;
    type->ub = type->has_ub ? maker->mark_ub : maker->data_ub;
    if (!type->has_ub && type->combiner == MPI_COMBINER_STRUCT) {
        type->ub += padding(type);
    }
    type->dense = is_dense(type);
    return type;
}

void type_make_same(struct type_maker *maker, MPI_Datatype old)
{
    struct poise_mpi_datatype *type = maker->type;

    type->basic = old->basic;
    type->elements = old->elements;
    type->size = old->size;
    type->lb = old->lb;
    type->ub = old->ub;
    type->true_lb = old->true_lb;
    type->true_ub = old->true_ub;
    type->align = old->align;
    type->has_lb = old->has_lb;
    type->has_ub = old->has_ub;
    type->root = old->root;
    type->dense = old->dense;
}

void type_make_bounds(struct type_maker *maker, ptrdiff_t lb, ptrdiff_t ub)
{
    struct poise_mpi_datatype *type = maker->type;

    type->has_lb = type->has_ub = true;
    type->lb = lb;
    type->ub = ub;
    type->dense = is_dense(type);
}
