/*
 * Types: commit and free, and what they say of themselves.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "make.h"
#include "vrank/mpi/comm.h"

/* ---- commit, free ------------------------------------------------------- */

int MPI_Type_commit(MPI_Datatype *datatype)
{
    if (datatype == NULL || *datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Type_commit", MPI_ERR_TYPE);
    }
    if (!(*datatype)->predefined) {
        (*datatype)->committed = true;
    }
    return MPI_SUCCESS;
}

int MPI_Type_free(MPI_Datatype *datatype)
{
    int code;

    if (datatype == NULL || *datatype == MPI_DATATYPE_NULL ||
        (*datatype)->predefined) {
        return type_fail("MPI_Type_free", MPI_ERR_TYPE);
    }
    code = type_clear_attributes(*datatype);
    if (code != MPI_SUCCESS) {
        return code;
    }
    type_release(*datatype);
    *datatype = MPI_DATATYPE_NULL;
    return MPI_SUCCESS;
}

/* ---- sizes and bounds --------------------------------------------------- */

int MPI_Type_size(MPI_Datatype datatype, int *size)
{
    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Type_size", MPI_ERR_TYPE);
    }
    if (!size) {
        return type_fail("MPI_Type_size", MPI_ERR_ARG);
    }
    *size = datatype->size > INT_MAX ? MPI_UNDEFINED : (int)datatype->size;
    return MPI_SUCCESS;
}

int MPI_Type_size_x(MPI_Datatype datatype, MPI_Count *size)
{
    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Type_size_x", MPI_ERR_TYPE);
    }
    if (!size) {
        return type_fail("MPI_Type_size_x", MPI_ERR_ARG);
    }
    *size = (MPI_Count)datatype->size;
    return MPI_SUCCESS;
}

int MPI_Type_get_extent(MPI_Datatype datatype, MPI_Aint *lb, MPI_Aint *extent)
{
    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Type_get_extent", MPI_ERR_TYPE);
    }
    *lb = datatype->lb;
    *extent = type_extent(datatype);
    return MPI_SUCCESS;
}

int MPI_Type_get_extent_x(MPI_Datatype datatype, MPI_Count *lb,
                          MPI_Count *extent)
{
    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Type_get_extent_x", MPI_ERR_TYPE);
    }
    *lb = datatype->lb;
    *extent = type_extent(datatype);
    return MPI_SUCCESS;
}

int MPI_Type_get_true_extent(MPI_Datatype datatype, MPI_Aint *true_lb,
                             MPI_Aint *true_extent)
{
    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Type_get_true_extent", MPI_ERR_TYPE);
    }
    *true_lb = datatype->true_lb;
    *true_extent = datatype->true_ub - datatype->true_lb;
    return MPI_SUCCESS;
}

int MPI_Type_get_true_extent_x(MPI_Datatype datatype, MPI_Count *true_lb,
                               MPI_Count *true_extent)
{
    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Type_get_true_extent_x", MPI_ERR_TYPE);
    }
    *true_lb = datatype->true_lb;
    *true_extent = datatype->true_ub - datatype->true_lb;
    return MPI_SUCCESS;
}

int MPI_Type_extent(MPI_Datatype datatype, MPI_Aint *extent)
{
    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Type_extent", MPI_ERR_TYPE);
    }
    *extent = type_extent(datatype);
    return MPI_SUCCESS;
}

int MPI_Type_lb(MPI_Datatype datatype, MPI_Aint *displacement)
{
    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Type_lb", MPI_ERR_TYPE);
    }
    *displacement = datatype->lb;
    return MPI_SUCCESS;
}

int MPI_Type_ub(MPI_Datatype datatype, MPI_Aint *displacement)
{
    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Type_ub", MPI_ERR_TYPE);
    }
    *displacement = datatype->ub;
    return MPI_SUCCESS;
}

int MPI_Get_address(const void *location, MPI_Aint *address)
{
    *address = (MPI_Aint)(uintptr_t)location;
    return MPI_SUCCESS;
}

int MPI_Address(void *location, MPI_Aint *address)
{
    return MPI_Get_address(location, address);
}

MPI_Aint MPI_Aint_add(MPI_Aint base, MPI_Aint disp)
{
    return base + disp;
}

MPI_Aint MPI_Aint_diff(MPI_Aint addr1, MPI_Aint addr2)
{
    return addr1 - addr2;
}

/* ---- names -------------------------------------------------------------- */

/* All ranks share the predefined ones: what one calls them is its own. */
static const char *name_of(MPI_Datatype datatype)
{
    struct mpi_note *note;

    if (!datatype->predefined) {
        return datatype->name != NULL ? datatype->name : "";
    }
    note = note_of(mpi_enter("MPI_Type_get_name"), datatype, false);
    return note != NULL && note->name[0] != '\0' ? note->name
                                                 : datatype->first_name;
}

int MPI_Type_get_name(MPI_Datatype datatype, char *type_name, int *resultlen)
{
    const char *name;

    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Type_get_name", MPI_ERR_TYPE);
    }
    name = name_of(datatype);
    *resultlen = (int)strlen(name);
    memcpy(type_name, name, strlen(name) + 1);
    return MPI_SUCCESS;
}

int MPI_Type_set_name(MPI_Datatype datatype, const char *type_name)
{
    struct mpi_note *note;
    char *name;

    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Type_set_name", MPI_ERR_TYPE);
    }
    if (datatype->predefined) {
        note = note_of(mpi_enter("MPI_Type_set_name"), datatype, true);
        if (note == NULL) {
            return type_fail("MPI_Type_set_name", MPI_ERR_NO_MEM);
        }
        snprintf(note->name, sizeof note->name, "%s", type_name);
        return MPI_SUCCESS;
    }
    name = strndup(type_name, MPI_MAX_OBJECT_NAME - 1);
    if (name == NULL) {
        return type_fail("MPI_Type_set_name", MPI_ERR_NO_MEM);
    }
    free(datatype->name);
    datatype->name = name;
    return MPI_SUCCESS;
}

/* ---- how it was made ---------------------------------------------------- */

int MPI_Type_get_envelope(MPI_Datatype datatype, int *num_integers,
                          int *num_addresses, int *num_datatypes, int *combiner)
{
    if (datatype == MPI_DATATYPE_NULL) {
        return type_fail("MPI_Type_get_envelope", MPI_ERR_TYPE);
    }
    *num_integers = datatype->integer_count;
    *num_addresses = datatype->address_count;
    *num_datatypes = datatype->type_count - datatype->hidden_types;
    *combiner = datatype->combiner;
    return MPI_SUCCESS;
}

int MPI_Type_get_contents(MPI_Datatype datatype, int max_integers,
                          int max_addresses, int max_datatypes,
                          int array_of_integers[],
                          MPI_Aint array_of_addresses[],
                          MPI_Datatype array_of_datatypes[])
{
    int visible;

    if (datatype == MPI_DATATYPE_NULL || datatype->predefined) {
        return type_fail("MPI_Type_get_contents", MPI_ERR_TYPE);
    }
    visible = datatype->type_count - datatype->hidden_types;
    if (max_integers < datatype->integer_count ||
        max_addresses < datatype->address_count || max_datatypes < visible) {
        return type_fail("MPI_Type_get_contents", MPI_ERR_ARG);
    }
    for (int i = 0; i < datatype->integer_count; i++) {
        array_of_integers[i] = datatype->integers[i];
    }
    for (int i = 0; i < datatype->address_count; i++) {
        array_of_addresses[i] = datatype->addresses[i];
    }
    /* What is not predefined is the caller's to free, as a type of its own. */
    for (int i = 0; i < visible; i++) {
        array_of_datatypes[i] = type_hold(datatype->types[i]);
    }
    return MPI_SUCCESS;
}

/* The type of a class with so many bytes, for Fortran's kinds. */
int MPI_Type_match_size(int typeclass, int size, MPI_Datatype *datatype)
{
    static const struct {
        int class, size;
        MPI_Datatype type;
    } known[] = {{MPI_TYPECLASS_INTEGER, 1, MPI_INTEGER1},
                 {MPI_TYPECLASS_INTEGER, 2, MPI_INTEGER2},
                 {MPI_TYPECLASS_INTEGER, 4, MPI_INTEGER4},
                 {MPI_TYPECLASS_INTEGER, 8, MPI_INTEGER8},
                 {MPI_TYPECLASS_REAL, 4, MPI_REAL4},
                 {MPI_TYPECLASS_REAL, 8, MPI_REAL8},
                 {MPI_TYPECLASS_REAL, sizeof(long double), MPI_LONG_DOUBLE},
                 {MPI_TYPECLASS_COMPLEX, 8, MPI_COMPLEX8},
                 {MPI_TYPECLASS_COMPLEX, 16, MPI_COMPLEX16},
                 {MPI_TYPECLASS_COMPLEX, 2 * sizeof(long double),
                  MPI_C_LONG_DOUBLE_COMPLEX}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].class == typeclass && known[i].size == size) {
            *datatype = known[i].type;
            return MPI_SUCCESS;
        }
    }
    return type_fail("MPI_Type_match_size", MPI_ERR_ARG);
}

int type_fail(const char *call, int code)
{
    return mpi_fail(mpi_enter_any(call), NULL, code, NULL);
}
