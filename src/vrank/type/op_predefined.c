/*
 * The predefined operations, on each basic type that MPI allows (MPI 3.1,
 * 5.9.2) and on MPI_CHAR, which both of the usual libraries take, too.
 *
 * All are loops over arrays: inout[i] = in[i] op inout[i], where `in` comes
 * from the lower ranks.
 */
#include <complex.h>

#include "type.h"

#define LOOP(name, type, expression)                                           \
    static void name(const void *in, void *inout, size_t count)                \
    {                                                                          \
        const type *a = in;                                                    \
        type *b = inout;                                                       \
        for (size_t i = 0; i < count; i++) {                                   \
            b[i] = (type)(expression);                                         \
        }                                                                      \
    }

/* Sums wrap around, as on the machine; `wide` is unsigned, so that this is
 * defined. */
#define INTEGER(name, type, wide)                                              \
    LOOP(name##_max, type, a[i] > b[i] ? a[i] : b[i])                          \
    LOOP(name##_min, type, a[i] < b[i] ? a[i] : b[i])                          \
    LOOP(name##_sum, type, (wide)a[i] + (wide)b[i])                            \
    LOOP(name##_prod, type, (wide)a[i] * (wide)b[i])                           \
    LOOP(name##_land, type, a[i] && b[i])                                      \
    LOOP(name##_lor, type, a[i] || b[i])                                       \
    LOOP(name##_lxor, type, !a[i] != !b[i])                                    \
    LOOP(name##_band, type, a[i] & b[i])                                       \
    LOOP(name##_bor, type, a[i] | b[i])                                        \
    LOOP(name##_bxor, type, a[i] ^ b[i])

#define REAL(name, type)                                                       \
    LOOP(name##_max, type, a[i] > b[i] ? a[i] : b[i])                          \
    LOOP(name##_min, type, a[i] < b[i] ? a[i] : b[i])                          \
    LOOP(name##_sum, type, a[i] + b[i])                                        \
    LOOP(name##_prod, type, a[i] * b[i])

#define COMPLEX(name, type)                                                    \
    LOOP(name##_sum, type, a[i] + b[i])                                        \
    LOOP(name##_prod, type, a[i] * b[i])

/* The better value and its index; of equal values the lower index. */
#define PAIR(name, value, index)                                               \
    struct name {                                                              \
        value v;                                                               \
        index k;                                                               \
    };                                                                         \
    static void name##_maxloc(const void *in, void *inout, size_t count)       \
    {                                                                          \
        const struct name *a = in;                                             \
        struct name *b = inout;                                                \
        for (size_t i = 0; i < count; i++) {                                   \
            if (a[i].v > b[i].v || (a[i].v == b[i].v && a[i].k < b[i].k)) {    \
                b[i] = a[i];                                                   \
            }                                                                  \
        }                                                                      \
    }                                                                          \
    static void name##_minloc(const void *in, void *inout, size_t count)       \
    {                                                                          \
        const struct name *a = in;                                             \
        struct name *b = inout;                                                \
        for (size_t i = 0; i < count; i++) {                                   \
            if (a[i].v < b[i].v || (a[i].v == b[i].v && a[i].k < b[i].k)) {    \
                b[i] = a[i];                                                   \
            }                                                                  \
        }                                                                      \
    }

INTEGER(int8, int8_t, unsigned)
INTEGER(int16, int16_t, unsigned)
INTEGER(int32, int32_t, uint32_t)
INTEGER(int64, int64_t, uint64_t)
INTEGER(uint8, uint8_t, unsigned)
INTEGER(uint16, uint16_t, unsigned)
INTEGER(uint32, uint32_t, uint32_t)
INTEGER(uint64, uint64_t, uint64_t)
REAL(float, float)
REAL(double, double)
REAL(long_double, long double)
COMPLEX(float_complex, float _Complex)
COMPLEX(double_complex, double _Complex)
COMPLEX(long_double_complex, long double _Complex)
LOOP(bool_land, bool, a[i] && b[i])
LOOP(bool_lor, bool, a[i] || b[i])
LOOP(bool_lxor, bool, a[i] != b[i])
PAIR(float_int, float, int)
PAIR(double_int, double, int)
PAIR(long_int, long, int)
PAIR(two_int, int, int)
PAIR(short_int, short, int)
PAIR(long_double_int, long double, int)
PAIR(two_float, float, float)
PAIR(two_double, double, double)

#define INTEGERS(op)                                                           \
    [TYPE_INT8] = int8_##op, [TYPE_INT16] = int16_##op,                        \
    [TYPE_INT32] = int32_##op, [TYPE_INT64] = int64_##op,                      \
    [TYPE_UINT8] = uint8_##op, [TYPE_UINT16] = uint16_##op,                    \
    [TYPE_UINT32] = uint32_##op, [TYPE_UINT64] = uint64_##op,                  \
    [TYPE_CHAR] = int8_##op
#define REALS(op)                                                              \
    [TYPE_FLOAT] = float_##op, [TYPE_DOUBLE] = double_##op,                    \
    [TYPE_LONG_DOUBLE] = long_double_##op
#define COMPLEXES(op)                                                          \
    [TYPE_FLOAT_COMPLEX] = float_complex_##op,                                 \
    [TYPE_DOUBLE_COMPLEX] = double_complex_##op,                               \
    [TYPE_LONG_DOUBLE_COMPLEX] = long_double_complex_##op
#define LOGICALS(op) [TYPE_BOOL] = bool_##op, [TYPE_LOGICAL] = int32_##op
#define PAIRS(op)                                                              \
    [TYPE_FLOAT_INT] = float_int_##op, [TYPE_DOUBLE_INT] = double_int_##op,    \
    [TYPE_LONG_INT] = long_int_##op, [TYPE_2INT] = two_int_##op,               \
    [TYPE_SHORT_INT] = short_int_##op,                                         \
    [TYPE_LONG_DOUBLE_INT] = long_double_int_##op,                             \
    [TYPE_2FLOAT] = two_float_##op, [TYPE_2DOUBLE] = two_double_##op

#define OPERATION(op, called, ...)                                             \
    static op_function *const op##_functions[TYPE_BASICS] = {__VA_ARGS__};     \
    const struct poise_mpi_op poise_mpi_op_##op = {.predefined = true,         \
                                                   .commutative = true,        \
                                                   .functions =                \
                                                       op##_functions,         \
                                                   .name = called}

OPERATION(max, "MPI_MAX", INTEGERS(max), REALS(max));
OPERATION(min, "MPI_MIN", INTEGERS(min), REALS(min));
OPERATION(sum, "MPI_SUM", INTEGERS(sum), REALS(sum), COMPLEXES(sum));
OPERATION(prod, "MPI_PROD", INTEGERS(prod), REALS(prod), COMPLEXES(prod));
OPERATION(land, "MPI_LAND", INTEGERS(land), LOGICALS(land));
OPERATION(lor, "MPI_LOR", INTEGERS(lor), LOGICALS(lor));
OPERATION(lxor, "MPI_LXOR", INTEGERS(lxor), LOGICALS(lxor));
OPERATION(band, "MPI_BAND", INTEGERS(band), [TYPE_BYTE] = uint8_band);
OPERATION(bor, "MPI_BOR", INTEGERS(bor), [TYPE_BYTE] = uint8_bor);
OPERATION(bxor, "MPI_BXOR", INTEGERS(bxor), [TYPE_BYTE] = uint8_bxor);
OPERATION(maxloc, "MPI_MAXLOC", PAIRS(maxloc));
OPERATION(minloc, "MPI_MINLOC", PAIRS(minloc));
/* For one-sided communication only. */
OPERATION(replace, "MPI_REPLACE", NULL);
OPERATION(no_op, "MPI_NO_OP", NULL);

static const struct poise_mpi_op *const all[] = {
    &poise_mpi_op_max,     &poise_mpi_op_min,    &poise_mpi_op_sum,
    &poise_mpi_op_prod,    &poise_mpi_op_land,   &poise_mpi_op_lor,
    &poise_mpi_op_lxor,    &poise_mpi_op_band,   &poise_mpi_op_bor,
    &poise_mpi_op_bxor,    &poise_mpi_op_maxloc, &poise_mpi_op_minloc,
    &poise_mpi_op_replace, &poise_mpi_op_no_op};

int op_predefined(const struct poise_mpi_op *const **ops)
{
    *ops = all;
    return sizeof all / sizeof all[0];
}
