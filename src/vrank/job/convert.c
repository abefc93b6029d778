/*
 * Handles as integers, which is how Fortran sees them: 0 is null, small
 * numbers are what is there from the beginning, and larger ones stand in a
 * list of the rank. An object keeps its number for as long as it lives; the
 * next one at its address gets it then.
 */
#include "job.h"
#include "vrank/type/type.h"

#include <stdlib.h>

#define FIRST_OWN 1000

struct mpi_handles {
    void **items; /* owned */
    int count, cap;
};

void mpi_handles_free(struct vrank_mpi *mpi)
{
    if (mpi->handles) {
        free(mpi->handles->items);
        free(mpi->handles);
        mpi->handles = NULL;
    }
}

static int grow(struct mpi_handles *handles)
{
    size_t cap = handles->cap ? (size_t)handles->cap * 2 : 16;
    void *items = poise_realloc(handles->items, cap, sizeof *handles->items);
    if (!items) {
        return MPI_ERR_NO_MEM;
    }
    handles->items = items;
    handles->cap = (int)cap;
    return MPI_SUCCESS;
}

/* The number of an object that is not predefined. */
static MPI_Fint own_number(const char *call, void *object)
{
    struct vrank_mpi *mpi = mpi_enter_any(call);
    if (!mpi->handles) {
        mpi->handles = poise_alloc(1, sizeof *mpi->handles);
    }
    struct mpi_handles *handles = mpi->handles;
    for (int i = 0; handles && i < handles->count; i++) {
        if (handles->items[i] == object) {
            return FIRST_OWN + i;
        }
    }
    if (!handles ||
        (handles->count == handles->cap && grow(handles) != MPI_SUCCESS)) {
        mpi_fail(mpi, NULL, MPI_ERR_NO_MEM, NULL);
        return 0;
    }
    handles->items[handles->count] = object;
    return FIRST_OWN + handles->count++;
}

/* The object with a number; NULL if there is none. */
static void *own_object(const char *call, MPI_Fint number)
{
    const struct vrank_mpi *mpi = mpi_enter_any(call);
    int at = number - FIRST_OWN;
    return mpi->handles && at >= 0 && at < mpi->handles->count
               ? mpi->handles->items[at]
               : NULL;
}

/* The same for kinds with a few predefined objects, numbers 1 and on. */
static MPI_Fint number_of(const char *call, void *object,
                          const void *const *predefined, int count)
{
    for (int i = 0; i < count; i++) {
        if (object == predefined[i]) {
            return i + 1;
        }
    }
    return object ? own_number(call, object) : 0;
}

static void *object_of(const char *call, MPI_Fint number,
                       const void *const *predefined, int count)
{
    if (number > 0 && number <= count) {
        return (void *)predefined[number - 1];
    }
    return own_object(call, number);
}

static const void *const comms[] = {&poise_mpi_comm_world,
                                    &poise_mpi_comm_self};
static const void *const groups[] = {&poise_mpi_group_empty};
static const void *const handlers[] = {&poise_mpi_errors_are_fatal,
                                       &poise_mpi_errors_return};
static const void *const infos[] = {&poise_mpi_info_env};
static const void *const messages[] = {&poise_mpi_message_no_proc};

MPI_Fint MPI_Comm_c2f(MPI_Comm comm)
{
    return number_of("MPI_Comm_c2f", comm, comms, 2);
}

MPI_Comm MPI_Comm_f2c(MPI_Fint comm)
{
    return object_of("MPI_Comm_f2c", comm, comms, 2);
}

MPI_Fint MPI_Group_c2f(MPI_Group group)
{
    return number_of("MPI_Group_c2f", group, groups, 1);
}

MPI_Group MPI_Group_f2c(MPI_Fint group)
{
    return object_of("MPI_Group_f2c", group, groups, 1);
}

MPI_Fint MPI_Errhandler_c2f(MPI_Errhandler handler)
{
    return number_of("MPI_Errhandler_c2f", handler, handlers, 2);
}

MPI_Errhandler MPI_Errhandler_f2c(MPI_Fint handler)
{
    return object_of("MPI_Errhandler_f2c", handler, handlers, 2);
}

MPI_Fint MPI_Info_c2f(MPI_Info info)
{
    return number_of("MPI_Info_c2f", info, infos, 1);
}

MPI_Info MPI_Info_f2c(MPI_Fint info)
{
    return object_of("MPI_Info_f2c", info, infos, 1);
}

MPI_Fint MPI_Message_c2f(MPI_Message message)
{
    return number_of("MPI_Message_c2f", message, messages, 1);
}

MPI_Message MPI_Message_f2c(MPI_Fint message)
{
    return object_of("MPI_Message_f2c", message, messages, 1);
}

MPI_Fint MPI_Request_c2f(MPI_Request request)
{
    return number_of("MPI_Request_c2f", request, NULL, 0);
}

MPI_Request MPI_Request_f2c(MPI_Fint request)
{
    return object_of("MPI_Request_f2c", request, NULL, 0);
}

MPI_Fint MPI_Op_c2f(MPI_Op op)
{
    const struct poise_mpi_op *const *all;
    int count = op_predefined(&all);
    return number_of("MPI_Op_c2f", op, (const void *const *)all, count);
}

MPI_Op MPI_Op_f2c(MPI_Fint op)
{
    const struct poise_mpi_op *const *all;
    int count = op_predefined(&all);
    return object_of("MPI_Op_f2c", op, (const void *const *)all, count);
}

MPI_Fint MPI_Type_c2f(MPI_Datatype type)
{
    const struct poise_mpi_datatype *const *all;
    int count = type_predefined(&all);
    return number_of("MPI_Type_c2f", type, (const void *const *)all, count);
}

MPI_Datatype MPI_Type_f2c(MPI_Fint type)
{
    const struct poise_mpi_datatype *const *all;
    int count = type_predefined(&all);
    return object_of("MPI_Type_f2c", type, (const void *const *)all, count);
}
