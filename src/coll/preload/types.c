/* Which of MPI's types and operations have a counterpart in Poise. */
#include "types.h"

#include <stddef.h>

bool preload_type_of(MPI_Datatype type, enum poise_coll_type *out)
{
    static const struct {
        MPI_Datatype mpi;
        enum poise_coll_type poise;
    } rows[] = {
        {MPI_DOUBLE, POISE_DOUBLE},
        {MPI_INT, POISE_INT32},
        {MPI_FLOAT, POISE_FLOAT},
        {MPI_LONG, sizeof(long) == 8 ? POISE_INT64 : POISE_INT32},
        {MPI_LONG_LONG_INT, POISE_INT64},
        {MPI_UNSIGNED, POISE_UINT32},
        {MPI_UNSIGNED_LONG, sizeof(long) == 8 ? POISE_UINT64 : POISE_UINT32},
        {MPI_UNSIGNED_LONG_LONG, POISE_UINT64},
        {MPI_SHORT, POISE_INT16},
        {MPI_UNSIGNED_SHORT, POISE_UINT16},
        {MPI_SIGNED_CHAR, POISE_INT8},
        {MPI_UNSIGNED_CHAR, POISE_UINT8},
        {MPI_INT8_T, POISE_INT8},
        {MPI_INT16_T, POISE_INT16},
        {MPI_INT32_T, POISE_INT32},
        {MPI_INT64_T, POISE_INT64},
        {MPI_UINT8_T, POISE_UINT8},
        {MPI_UINT16_T, POISE_UINT16},
        {MPI_UINT32_T, POISE_UINT32},
        {MPI_UINT64_T, POISE_UINT64},
        {MPI_INTEGER, POISE_INT32},
        {MPI_REAL, POISE_FLOAT},
        {MPI_DOUBLE_PRECISION, POISE_DOUBLE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].mpi == type && type != MPI_DATATYPE_NULL) {
            *out = rows[i].poise;
            return true;
        }
    }
    return false;
}

bool preload_op_of(MPI_Op op, enum poise_coll_op *out)
{
    static const struct {
        MPI_Op mpi;
        enum poise_coll_op poise;
    } rows[] = {
        {MPI_SUM, POISE_OP_SUM},   {MPI_MAX, POISE_OP_MAX},
        {MPI_MIN, POISE_OP_MIN},   {MPI_PROD, POISE_OP_PROD},
        {MPI_BAND, POISE_OP_BAND}, {MPI_BOR, POISE_OP_BOR},
        {MPI_BXOR, POISE_OP_BXOR}, {MPI_LAND, POISE_OP_LAND},
        {MPI_LOR, POISE_OP_LOR},   {MPI_LXOR, POISE_OP_LXOR},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].mpi == op) {
            *out = rows[i].poise;
            return true;
        }
    }
    return false;
}

uint64_t preload_width_of(MPI_Datatype type)
{
    static const uint64_t widths[POISE_COLL_TYPES] = {
        [POISE_INT8] = 1,   [POISE_INT16] = 2,  [POISE_INT32] = 4,
        [POISE_INT64] = 8,  [POISE_UINT8] = 1,  [POISE_UINT16] = 2,
        [POISE_UINT32] = 4, [POISE_UINT64] = 8, [POISE_FLOAT] = 4,
        [POISE_DOUBLE] = 8};
    enum poise_coll_type t;
    return preload_type_of(type, &t) ? widths[t] : 0;
}
