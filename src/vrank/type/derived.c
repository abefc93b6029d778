/*
 * The constructors of derived types. Source: MPI 3.1, 4.1.2 to 4.1.8.
 */
#include <string.h>

#include "make.h"

/* ---- one block, or evenly spaced ones ----------------------------------- */

int MPI_Type_contiguous(int count, MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    static const char call[] = "MPI_Type_contiguous";
    struct type_maker maker;
    int code;

    if (count < 0) {
        return type_fail(call, MPI_ERR_COUNT);
    }
    if (oldtype == MPI_DATATYPE_NULL) {
        return type_fail(call, MPI_ERR_TYPE);
    }
    code = type_make_begin(&maker, MPI_COMBINER_CONTIGUOUS, 1, 0, 1, 1);
    if (code != MPI_SUCCESS) {
        return type_fail(call, code);
    }
    maker.type->integers[0] = count;
    type_make_remember(&maker, oldtype);
    type_make_place(&maker, oldtype, (size_t)count, 0);
    *newtype = type_make_end(&maker);
    return MPI_SUCCESS;
}

int type_make_hvector(int count, int blocklength, ptrdiff_t stride,
                      MPI_Datatype old, MPI_Datatype *out)
{
    struct type_maker maker;
    int code;

    if (count < 0) {
        return MPI_ERR_COUNT;
    }
    if (blocklength < 0) {
        return MPI_ERR_ARG;
    }
    if (old == MPI_DATATYPE_NULL) {
        return MPI_ERR_TYPE;
    }
    code = type_make_begin(&maker, MPI_COMBINER_HVECTOR, 3, 1, 1, 2);
    if (code != MPI_SUCCESS) {
        return code;
    }
    maker.type->integer_count = 2;
    maker.type->integers[0] = count;
    maker.type->integers[1] = blocklength;
    maker.type->addresses[0] = stride;
    type_make_remember(&maker, old);
    if (count > 0 && blocklength > 0) {
        type_make_place(&maker, old, (size_t)blocklength, 0);
        type_make_repeat(&maker, (size_t)count, stride);
    }
    *out = type_make_end(&maker);
    return MPI_SUCCESS;
}

int MPI_Type_create_hvector(int count, int blocklength, MPI_Aint stride,
                            MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    int code = type_make_hvector(count, blocklength, stride, oldtype, newtype);

    return code == MPI_SUCCESS ? code
                               : type_fail("MPI_Type_create_hvector", code);
}

int MPI_Type_hvector(int count, int blocklength, MPI_Aint stride,
                     MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    return MPI_Type_create_hvector(count, blocklength, stride, oldtype,
                                   newtype);
}

int MPI_Type_vector(int count, int blocklength, int stride,
                    MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    int code;

    if (oldtype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Type_vector", MPI_ERR_TYPE);
    }
    code = type_make_hvector(count, blocklength, stride * type_extent(oldtype),
                             oldtype, newtype);
    if (code != MPI_SUCCESS) {
        return type_fail("MPI_Type_vector", code);
    }
    (*newtype)->combiner = MPI_COMBINER_VECTOR;
    (*newtype)->integer_count = 3;
    (*newtype)->integers[2] = stride;
    (*newtype)->address_count = 0;
    return MPI_SUCCESS;
}

/* ---- blocks at places --------------------------------------------------- */

/* What the constructors of this kind have in common. */
struct blocks {
    int combiner;
    int count;
    int blocklength;         /* of all, unless ... */
    const int *blocklengths; /* ... there is an array */
    const int *indices;      /* displacements, in elements, or ... */
    const MPI_Aint *places;  /* ... in bytes */
    MPI_Datatype old;        /* of all, unless ... */
    const MPI_Datatype *olds;
};

static int block_length(const struct blocks *blocks, int i)
{
    return blocks->blocklengths ? blocks->blocklengths[i] : blocks->blocklength;
}

static MPI_Datatype block_type(const struct blocks *blocks, int i)
{
    return blocks->olds ? blocks->olds[i] : blocks->old;
}

static int blocks_check(const struct blocks *blocks)
{
    if (blocks->count < 0) {
        return MPI_ERR_COUNT;
    }
    if (blocks->olds == NULL && blocks->old == MPI_DATATYPE_NULL) {
        return MPI_ERR_TYPE;
    }
    for (int i = 0; i < blocks->count; i++) {
        if (block_length(blocks, i) < 0) {
            return MPI_ERR_ARG;
        }
        if (block_type(blocks, i) == MPI_DATATYPE_NULL) {
            return MPI_ERR_TYPE;
        }
    }
    return MPI_SUCCESS;
}

/* What MPI_Type_get_contents returns: the count, then the length or lengths,
 * then displacements. */
static void blocks_remember(struct type_maker *maker,
                            const struct blocks *blocks)
{
    int *integers = maker->type->integers;
    size_t count = (size_t)blocks->count;

    *integers++ = blocks->count;
    if (blocks->blocklengths == NULL) {
        *integers++ = blocks->blocklength;
    } else if (count > 0) {
        memcpy(integers, blocks->blocklengths, count * sizeof(int));
        integers += count;
    }
    if (blocks->indices != NULL && count > 0) {
        memcpy(integers, blocks->indices, count * sizeof(int));
    }
    if (blocks->places != NULL && count > 0) {
        memcpy(maker->type->addresses, blocks->places,
               count * sizeof(MPI_Aint));
    }
    for (int i = 0; blocks->olds != NULL && i < blocks->count; i++) {
        type_make_remember(maker, blocks->olds[i]);
    }
    if (blocks->olds == NULL) {
        type_make_remember(maker, blocks->old);
    }
}

static int blocks_make(const struct blocks *blocks, MPI_Datatype *out)
{
    int count = blocks->count;
    int integers =
        1 + (blocks->blocklengths ? count : 1) + (blocks->indices ? count : 0);
    struct type_maker maker;
    int code = type_make_begin(&maker, blocks->combiner, integers,
                               blocks->places ? count : 0,
                               blocks->olds ? count : 1, (size_t)count);

    if (code != MPI_SUCCESS) {
        return code;
    }
    blocks_remember(&maker, blocks);
    for (int i = 0; i < count; i++) {
        MPI_Datatype old = block_type(blocks, i);
        type_make_place(&maker, old, (size_t)block_length(blocks, i),
                        blocks->places ? blocks->places[i]
                                       : blocks->indices[i] * type_extent(old));
    }
    *out = type_make_end(&maker);
    return MPI_SUCCESS;
}

static int blocks_type(const char *call, const struct blocks *blocks,
                       MPI_Datatype *out)
{
    int code = blocks_check(blocks);

    if (code == MPI_SUCCESS) {
        code = blocks_make(blocks, out);
    }
    return code == MPI_SUCCESS ? code : type_fail(call, code);
}

/* An array that is empty may be missing; what distinguishes the constructors is
 * whether there is one. */
static const int no_ints[1];
static const MPI_Aint no_places[1];

int MPI_Type_indexed(int count, const int array_of_blocklengths[],
                     const int array_of_displacements[], MPI_Datatype oldtype,
                     MPI_Datatype *newtype)
{
    return blocks_type(
        "MPI_Type_indexed",
        &(struct blocks){
            .combiner = MPI_COMBINER_INDEXED,
            .count = count,
            .blocklengths = count > 0 ? array_of_blocklengths : no_ints,
            .indices = count > 0 ? array_of_displacements : no_ints,
            .old = oldtype},
        newtype);
}

int MPI_Type_create_hindexed(int count, const int array_of_blocklengths[],
                             const MPI_Aint array_of_displacements[],
                             MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    return blocks_type(
        "MPI_Type_create_hindexed",
        &(struct blocks){
            .combiner = MPI_COMBINER_HINDEXED,
            .count = count,
            .blocklengths = count > 0 ? array_of_blocklengths : no_ints,
            .places = count > 0 ? array_of_displacements : no_places,
            .old = oldtype},
        newtype);
}

int MPI_Type_hindexed(int count, int array_of_blocklengths[],
                      MPI_Aint array_of_displacements[], MPI_Datatype oldtype,
                      MPI_Datatype *newtype)
{
    return MPI_Type_create_hindexed(count, array_of_blocklengths,
                                    array_of_displacements, oldtype, newtype);
}

int MPI_Type_create_indexed_block(int count, int blocklength,
                                  const int array_of_displacements[],
                                  MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    return blocks_type("MPI_Type_create_indexed_block",
                       &(struct blocks){.combiner = MPI_COMBINER_INDEXED_BLOCK,
                                        .count = count,
                                        .blocklength = blocklength,
                                        .indices = count > 0
                                                       ? array_of_displacements
                                                       : no_ints,
                                        .old = oldtype},
                       newtype);
}

int MPI_Type_create_hindexed_block(int count, int blocklength,
                                   const MPI_Aint array_of_displacements[],
                                   MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    return blocks_type("MPI_Type_create_hindexed_block",
                       &(struct blocks){.combiner = MPI_COMBINER_HINDEXED_BLOCK,
                                        .count = count,
                                        .blocklength = blocklength,
                                        .places = count > 0
                                                      ? array_of_displacements
                                                      : no_places,
                                        .old = oldtype},
                       newtype);
}

int MPI_Type_create_struct(int count, const int array_of_blocklengths[],
                           const MPI_Aint array_of_displacements[],
                           const MPI_Datatype array_of_types[],
                           MPI_Datatype *newtype)
{
    static const MPI_Datatype none[1];

    return blocks_type(
        "MPI_Type_create_struct",
        &(struct blocks){
            .combiner = MPI_COMBINER_STRUCT,
            .count = count,
            .blocklengths = count > 0 ? array_of_blocklengths : no_ints,
            .places = count > 0 ? array_of_displacements : no_places,
            .olds = count > 0 ? array_of_types : none},
        newtype);
}

int MPI_Type_struct(int count, int array_of_blocklengths[],
                    MPI_Aint array_of_displacements[],
                    MPI_Datatype array_of_types[], MPI_Datatype *newtype)
{
    return MPI_Type_create_struct(count, array_of_blocklengths,
                                  array_of_displacements, array_of_types,
                                  newtype);
}

/* ---- the same type again ------------------------------------------------ */

int type_make_resized(MPI_Datatype old, MPI_Aint lb, MPI_Aint extent,
                      MPI_Datatype *out)
{
    struct type_maker maker;
    int code = type_make_begin(&maker, MPI_COMBINER_RESIZED, 0, 2, 1, 0);

    if (code != MPI_SUCCESS) {
        return code;
    }
    type_make_remember(&maker, old);
    maker.type->addresses[0] = lb;
    maker.type->addresses[1] = extent;
    type_make_same(&maker, old);
    type_make_bounds(&maker, lb, lb + extent);
    *out = maker.type;
    return MPI_SUCCESS;
}

int MPI_Type_create_resized(MPI_Datatype oldtype, MPI_Aint lb, MPI_Aint extent,
                            MPI_Datatype *newtype)
{
    int code = oldtype == MPI_DATATYPE_NULL
                   ? MPI_ERR_TYPE
                   : type_make_resized(oldtype, lb, extent, newtype);

    return code == MPI_SUCCESS ? code
                               : type_fail("MPI_Type_create_resized", code);
}

int MPI_Type_dup(MPI_Datatype oldtype, MPI_Datatype *newtype)
{
    struct type_maker maker;
    int code = oldtype == MPI_DATATYPE_NULL
                   ? MPI_ERR_TYPE
                   : type_make_begin(&maker, MPI_COMBINER_DUP, 0, 0, 1, 0);

    *newtype = MPI_DATATYPE_NULL;
    if (code != MPI_SUCCESS) {
        return type_fail("MPI_Type_dup", code);
    }
    type_make_remember(&maker, oldtype);
    type_make_same(&maker, oldtype);
    maker.type->committed = oldtype->committed;
    code = type_copy_attributes(oldtype, maker.type);
    if (code != MPI_SUCCESS) {
        type_release(maker.type);
        return type_fail("MPI_Type_dup", code);
    }
    *newtype = maker.type;
    return MPI_SUCCESS;
}
