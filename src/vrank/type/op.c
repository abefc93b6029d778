/*
 * Operations: the user's, and applying them.
 */
#include <limits.h>
#include <stdlib.h>

#include "type.h"
#include "vrank/mpi/state.h"

MPI_Op op_hold(MPI_Op op)
{
    if (!op->predefined) {
        __atomic_add_fetch(&op->references, 1, __ATOMIC_RELAXED);
    }
    return op;
}

void op_release(MPI_Op op)
{
    if (op != NULL && !op->predefined &&
        __atomic_sub_fetch(&op->references, 1, __ATOMIC_ACQ_REL) == 0) {
        free(op);
    }
}

int op_check(MPI_Op op, MPI_Datatype type)
{
    if (op == MPI_OP_NULL) {
        return MPI_ERR_OP;
    }
    if (type == MPI_DATATYPE_NULL || !type->committed) {
        return MPI_ERR_TYPE;
    }
    if (!op->predefined) {
        return MPI_SUCCESS;
    }
    /* A row of one basic type is as good as that type. */
    return op->functions[type->basic] != NULL &&
                   (type->predefined || type->dense)
               ? MPI_SUCCESS
               : MPI_ERR_OP;
}

/* The basic type's extent: how far apart the objects of the loops are. */
static size_t unit_bytes(const struct poise_mpi_datatype *type)
{
    static const unsigned char bytes[TYPE_BASICS] = {
        [TYPE_INT8] = 1,
        [TYPE_INT16] = 2,
        [TYPE_INT32] = 4,
        [TYPE_INT64] = 8,
        [TYPE_UINT8] = 1,
        [TYPE_UINT16] = 2,
        [TYPE_UINT32] = 4,
        [TYPE_UINT64] = 8,
        [TYPE_FLOAT] = sizeof(float),
        [TYPE_DOUBLE] = sizeof(double),
        [TYPE_LONG_DOUBLE] = sizeof(long double),
        [TYPE_FLOAT_COMPLEX] = 2 * sizeof(float),
        [TYPE_DOUBLE_COMPLEX] = 2 * sizeof(double),
        [TYPE_LONG_DOUBLE_COMPLEX] = 2 * sizeof(long double),
        [TYPE_BOOL] = sizeof(bool),
        [TYPE_LOGICAL] = 4,
        [TYPE_BYTE] = 1,
        [TYPE_CHAR] = 1,
        [TYPE_FLOAT_INT] = 8,
        [TYPE_2INT] = 8,
        [TYPE_2FLOAT] = 8,
        [TYPE_2DOUBLE] = 16};

    return bytes[type->basic];
}

/* A function of the user's takes its count as an int. */
static void apply_user(MPI_Op op, MPI_Datatype type, size_t count,
                       const void *in, void *inout)
{
    char *from = (char *)(uintptr_t)in, *to = inout;

    while (count > 0) {
        int now = count > INT_MAX ? INT_MAX : (int)count;
        op->user(from, to, &now, &type);
        from += now * type_extent(type);
        to += now * type_extent(type);
        count -= (size_t)now;
    }
}

op_function *op_of_basic(MPI_Op op, MPI_Datatype type, size_t *count)
{
    if (!type->predefined) {
        *count = *count * type->size / unit_bytes(type);
    }
    return op->functions[type->basic];
}

void op_apply(MPI_Op op, MPI_Datatype type, size_t count, const void *in,
              void *inout)
{
    if (!op->predefined) {
        apply_user(op, type, count, in, inout);
        return;
    }
    op_of_basic(op, type, &count)(in, inout, count);
}

/* ---- the functions of MPI ----------------------------------------------- */

int MPI_Op_create(MPI_User_function *user_fn, int commute, MPI_Op *op)
{
    MPI_Op made;

    if (user_fn == NULL) {
        return mpi_fail(mpi_enter("MPI_Op_create"), NULL, MPI_ERR_ARG,
                        "there is no function");
    }
    made = poise_alloc(1, sizeof *made);
    if (made == NULL) {
        return mpi_fail(mpi_enter("MPI_Op_create"), NULL, MPI_ERR_NO_MEM, NULL);
    }
    *made = (struct poise_mpi_op){
        .references = 1, .commutative = commute != 0, .user = user_fn};
    *op = made;
    return MPI_SUCCESS;
}

int MPI_Op_free(MPI_Op *op)
{
    if (op == NULL || *op == MPI_OP_NULL || (*op)->predefined) {
        return mpi_fail(mpi_enter("MPI_Op_free"), NULL, MPI_ERR_OP, NULL);
    }
    op_release(*op);
    *op = MPI_OP_NULL;
    return MPI_SUCCESS;
}

int MPI_Op_commutative(MPI_Op op, int *commute)
{
    if (op == MPI_OP_NULL) {
        return mpi_fail(mpi_enter("MPI_Op_commutative"), NULL, MPI_ERR_OP,
                        NULL);
    }
    *commute = op->commutative;
    return MPI_SUCCESS;
}

int MPI_Reduce_local(const void *inbuf, void *inoutbuf, int count,
                     MPI_Datatype datatype, MPI_Op op)
{
    int code = count < 0 ? MPI_ERR_COUNT : op_check(op, datatype);

    if (code == MPI_SUCCESS &&
        (inbuf == MPI_IN_PLACE || inoutbuf == MPI_IN_PLACE)) {
        code = MPI_ERR_BUFFER;
    }
    if (code != MPI_SUCCESS) {
        return mpi_fail(mpi_enter("MPI_Reduce_local"), NULL, code, NULL);
    }
    op_apply(op, datatype, (size_t)count, inbuf, inoutbuf);
    return MPI_SUCCESS;
}
