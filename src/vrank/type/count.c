/*
 * Counting what has arrived: bytes into elements, and elements into basic
 * ones.
 */
#include <limits.h>

#include "make.h"

/* ---- basic elements ----------------------------------------------------- */

/* Bytes left to count; what has been counted. */
struct tally {
    size_t left;
    MPI_Count elements;
    bool ends_within; /* a basic element */
};

static void tally_type(const struct poise_mpi_datatype *type, size_t count,
                       struct tally *tally);

/* A predefined type, the first half of a pair maybe. */
static void tally_basic(const struct poise_mpi_datatype *type,
                        struct tally *tally)
{
    size_t first;

    switch (type->basic) {
    case TYPE_DOUBLE_INT:
    case TYPE_LONG_INT:
    case TYPE_2DOUBLE:
        first = sizeof(double);
        break;
    case TYPE_LONG_DOUBLE_INT:
        first = sizeof(long double);
        break;
    case TYPE_SHORT_INT:
        first = sizeof(short);
        break;
    case TYPE_FLOAT_INT:
    case TYPE_2INT:
    case TYPE_2FLOAT:
        first = sizeof(int);
        break;
    default:
        first = type->size;
        break;
    }
    if (tally->left == first && first < type->size) {
        tally->elements++;
        tally->left = 0;
    } else {
        tally->ends_within = true;
    }
}

/* The parts of one derived element, in the order of its data. */
static void tally_parts(const struct poise_mpi_datatype *type,
                        struct tally *tally)
{
    bool has_lengths = type->combiner == MPI_COMBINER_STRUCT;

    if (!has_lengths) {
        /* All of one type: how it is arranged does not matter here. */
        const struct poise_mpi_datatype *part = type->types[0];
        tally_type(part, part->size > 0 ? type->size / part->size : 0, tally);
        return;
    }
    for (int i = 0; i < type->type_count && tally->left > 0; i++) {
        tally_type(type->types[i], (size_t)type->integers[1 + i], tally);
    }
}

static void tally_type(const struct poise_mpi_datatype *type, size_t count,
                       struct tally *tally)
{
    size_t whole = type->size > 0 ? tally->left / type->size : count;

    if (whole > count) {
        whole = count;
    }
    tally->elements += (MPI_Count)(whole * type->elements);
    tally->left -= whole * type->size;
    if (whole == count || tally->left == 0) {
        return;
    }
    if (type->type_count == 0) {
        tally_basic(type, tally);
    } else {
        tally_parts(type, tally);
    }
}

MPI_Count type_elements(const struct poise_mpi_datatype *type, size_t bytes)
{
    struct tally tally = {.left = bytes};

    if (type->size == 0) {
        return bytes == 0 ? 0 : -1;
    }
    tally_type(type, SIZE_MAX, &tally);
    return tally.ends_within ? -1 : tally.elements;
}

/* ---- what a status says ------------------------------------------------- */

int MPI_Get_count(const MPI_Status *status, MPI_Datatype datatype, int *count)
{
    MPI_Count bytes;

    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Get_count", MPI_ERR_TYPE);
    }
    bytes = status->poise_bytes;
    if (datatype->size == 0) {
        *count = bytes == 0 ? 0 : MPI_UNDEFINED;
        return MPI_SUCCESS;
    }
    *count = MPI_UNDEFINED;
    if (bytes % (MPI_Count)datatype->size == 0 &&
        bytes / (MPI_Count)datatype->size <= INT_MAX) {
        *count = (int)(bytes / (MPI_Count)datatype->size);
    }
    return MPI_SUCCESS;
}

int MPI_Get_elements_x(const MPI_Status *status, MPI_Datatype datatype,
                       MPI_Count *count)
{
    MPI_Count elements;

    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Get_elements_x", MPI_ERR_TYPE);
    }
    elements = type_elements(datatype, (size_t)status->poise_bytes);
    *count = elements < 0 ? MPI_UNDEFINED : elements;
    return MPI_SUCCESS;
}

int MPI_Get_elements(const MPI_Status *status, MPI_Datatype datatype,
                     int *count)
{
    MPI_Count elements;

    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Get_elements", MPI_ERR_TYPE);
    }
    elements = type_elements(datatype, (size_t)status->poise_bytes);
    *count = elements < 0 || elements > INT_MAX ? MPI_UNDEFINED : (int)elements;
    return MPI_SUCCESS;
}

int MPI_Status_set_elements_x(MPI_Status *status, MPI_Datatype datatype,
                              MPI_Count count)
{
    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Status_set_elements_x", MPI_ERR_TYPE);
    }
    /* Of basic elements; what a status keeps is bytes. */
    status->poise_bytes =
        datatype->elements == 0
            ? 0
            : count * (MPI_Count)datatype->size / (MPI_Count)datatype->elements;
    return MPI_SUCCESS;
}

int MPI_Status_set_elements(MPI_Status *status, MPI_Datatype datatype,
                            int count)
{
    return MPI_Status_set_elements_x(status, datatype, count);
}
