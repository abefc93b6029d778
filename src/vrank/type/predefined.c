/*
 * The predefined data types: constant objects that all ranks share.
 */
#include <complex.h>
#include <stddef.h>
#include <wchar.h>

#include "type.h"

/* One object of C's `type`. */
#define BASIC(symbol, called, type, what)                                      \
    const struct poise_mpi_datatype poise_mpi_##symbol = {                     \
        .committed = true,                                                     \
        .predefined = true,                                                    \
        .dense = true,                                                         \
        .basic = TYPE_##what,                                                  \
        .elements = 1,                                                         \
        .size = sizeof(type),                                                  \
        .ub = sizeof(type),                                                    \
        .true_ub = sizeof(type),                                               \
        .align = _Alignof(type),                                               \
        .root = {.kind = TYPE_BLOCK, .size = sizeof(type)},                    \
        .combiner = MPI_COMBINER_NAMED,                                        \
        .first_name = called}

/* Two members side by side, without a gap between them but maybe behind. */
#define PAIR(symbol, called, one, other, what)                                 \
    struct symbol {                                                            \
        one first;                                                             \
        other second;                                                          \
    };                                                                         \
    const struct poise_mpi_datatype poise_mpi_##symbol = {                     \
        .committed = true,                                                     \
        .predefined = true,                                                    \
        .dense = sizeof(struct symbol) == sizeof(one) + sizeof(other),         \
        .basic = TYPE_##what,                                                  \
        .elements = 2,                                                         \
        .size = sizeof(one) + sizeof(other),                                   \
        .ub = sizeof(struct symbol),                                           \
        .true_ub = sizeof(one) + sizeof(other),                                \
        .align = _Alignof(struct symbol),                                      \
        .root = {.kind = TYPE_BLOCK, .size = sizeof(one) + sizeof(other)},     \
        .combiner = MPI_COMBINER_NAMED,                                        \
        .first_name = called}

/* What sets a bound of the structure that it is a member of. */
#define MARK(symbol, called, lower, upper)                                     \
    const struct poise_mpi_datatype poise_mpi_##symbol = {                     \
        .committed = true,                                                     \
        .predefined = true,                                                    \
        .dense = true,                                                         \
        .basic = TYPE_MARK,                                                    \
        .align = 1,                                                            \
        .has_lb = lower,                                                       \
        .has_ub = upper,                                                       \
        .combiner = MPI_COMBINER_NAMED,                                        \
        .first_name = called}

BASIC(type_char, "MPI_CHAR", char, CHAR);
BASIC(type_signed_char, "MPI_SIGNED_CHAR", signed char, INT8);
BASIC(type_unsigned_char, "MPI_UNSIGNED_CHAR", unsigned char, UINT8);
BASIC(type_byte, "MPI_BYTE", unsigned char, BYTE);
BASIC(type_wchar, "MPI_WCHAR", wchar_t, WCHAR);
BASIC(type_short, "MPI_SHORT", short, INT16);
BASIC(type_unsigned_short, "MPI_UNSIGNED_SHORT", unsigned short, UINT16);
BASIC(type_int, "MPI_INT", int, INT32);
BASIC(type_unsigned, "MPI_UNSIGNED", unsigned, UINT32);
BASIC(type_long, "MPI_LONG", long, INT64);
BASIC(type_unsigned_long, "MPI_UNSIGNED_LONG", unsigned long, UINT64);
BASIC(type_long_long_int, "MPI_LONG_LONG_INT", long long, INT64);
BASIC(type_unsigned_long_long, "MPI_UNSIGNED_LONG_LONG", unsigned long long,
      UINT64);
BASIC(type_float, "MPI_FLOAT", float, FLOAT);
BASIC(type_double, "MPI_DOUBLE", double, DOUBLE);
BASIC(type_long_double, "MPI_LONG_DOUBLE", long double, LONG_DOUBLE);
BASIC(type_int8_t, "MPI_INT8_T", int8_t, INT8);
BASIC(type_int16_t, "MPI_INT16_T", int16_t, INT16);
BASIC(type_int32_t, "MPI_INT32_T", int32_t, INT32);
BASIC(type_int64_t, "MPI_INT64_T", int64_t, INT64);
BASIC(type_uint8_t, "MPI_UINT8_T", uint8_t, UINT8);
BASIC(type_uint16_t, "MPI_UINT16_T", uint16_t, UINT16);
BASIC(type_uint32_t, "MPI_UINT32_T", uint32_t, UINT32);
BASIC(type_uint64_t, "MPI_UINT64_T", uint64_t, UINT64);
BASIC(type_aint, "MPI_AINT", MPI_Aint, INT64);
BASIC(type_count, "MPI_COUNT", MPI_Count, INT64);
BASIC(type_offset, "MPI_OFFSET", MPI_Offset, INT64);
BASIC(type_c_bool, "MPI_C_BOOL", bool, BOOL);
BASIC(type_c_float_complex, "MPI_C_FLOAT_COMPLEX", float _Complex,
      FLOAT_COMPLEX);
BASIC(type_c_double_complex, "MPI_C_DOUBLE_COMPLEX", double _Complex,
      DOUBLE_COMPLEX);
BASIC(type_c_long_double_complex, "MPI_C_LONG_DOUBLE_COMPLEX",
      long double _Complex, LONG_DOUBLE_COMPLEX);
BASIC(type_cxx_bool, "MPI_CXX_BOOL", bool, BOOL);
BASIC(type_cxx_float_complex, "MPI_CXX_FLOAT_COMPLEX", float _Complex,
      FLOAT_COMPLEX);
BASIC(type_cxx_double_complex, "MPI_CXX_DOUBLE_COMPLEX", double _Complex,
      DOUBLE_COMPLEX);
BASIC(type_cxx_long_double_complex, "MPI_CXX_LONG_DOUBLE_COMPLEX",
      long double _Complex, LONG_DOUBLE_COMPLEX);
BASIC(type_packed, "MPI_PACKED", unsigned char, PACKED);
BASIC(type_integer, "MPI_INTEGER", int32_t, INT32);
BASIC(type_real, "MPI_REAL", float, FLOAT);
BASIC(type_double_precision, "MPI_DOUBLE_PRECISION", double, DOUBLE);
BASIC(type_complex, "MPI_COMPLEX", float _Complex, FLOAT_COMPLEX);
BASIC(type_double_complex, "MPI_DOUBLE_COMPLEX", double _Complex,
      DOUBLE_COMPLEX);
BASIC(type_logical, "MPI_LOGICAL", int32_t, LOGICAL);
BASIC(type_character, "MPI_CHARACTER", char, CHAR);
BASIC(type_integer1, "MPI_INTEGER1", int8_t, INT8);
BASIC(type_integer2, "MPI_INTEGER2", int16_t, INT16);
BASIC(type_integer4, "MPI_INTEGER4", int32_t, INT32);
BASIC(type_integer8, "MPI_INTEGER8", int64_t, INT64);
BASIC(type_real4, "MPI_REAL4", float, FLOAT);
BASIC(type_real8, "MPI_REAL8", double, DOUBLE);
BASIC(type_complex8, "MPI_COMPLEX8", float _Complex, FLOAT_COMPLEX);
BASIC(type_complex16, "MPI_COMPLEX16", double _Complex, DOUBLE_COMPLEX);

PAIR(type_float_int, "MPI_FLOAT_INT", float, int, FLOAT_INT);
PAIR(type_double_int, "MPI_DOUBLE_INT", double, int, DOUBLE_INT);
PAIR(type_long_int, "MPI_LONG_INT", long, int, LONG_INT);
PAIR(type_2int, "MPI_2INT", int, int, 2INT);
PAIR(type_long_double_int, "MPI_LONG_DOUBLE_INT", long double, int,
     LONG_DOUBLE_INT);
PAIR(type_2integer, "MPI_2INTEGER", int, int, 2INT);
PAIR(type_2real, "MPI_2REAL", float, float, 2FLOAT);
PAIR(type_2double_precision, "MPI_2DOUBLE_PRECISION", double, double, 2DOUBLE);

/* The only one with a gap within. */
struct type_short_int {
    short first;
    int second;
};
static const struct type_node short_int_parts[] = {
    {.kind = TYPE_BLOCK, .size = sizeof(short)},
    {.kind = TYPE_BLOCK,
     .size = sizeof(int),
     .before = sizeof(short),
     .offset = offsetof(struct type_short_int, second)}};
const struct poise_mpi_datatype poise_mpi_type_short_int = {
    .committed = true,
    .predefined = true,
    .basic = TYPE_SHORT_INT,
    .elements = 2,
    .size = sizeof(short) + sizeof(int),
    .ub = sizeof(struct type_short_int),
    .true_ub = sizeof(struct type_short_int),
    .align = _Alignof(struct type_short_int),
    .root = {.kind = TYPE_LIST,
             .size = sizeof(short) + sizeof(int),
             .count = 2,
             .child = short_int_parts},
    .combiner = MPI_COMBINER_NAMED,
    .first_name = "MPI_SHORT_INT"};

MARK(type_lb, "MPI_LB", true, false);
MARK(type_ub, "MPI_UB", false, true);

/* The order is that of the numbers that Fortran sees. */
static const struct poise_mpi_datatype *const all[] = {
    &poise_mpi_type_char,
    &poise_mpi_type_signed_char,
    &poise_mpi_type_unsigned_char,
    &poise_mpi_type_byte,
    &poise_mpi_type_wchar,
    &poise_mpi_type_short,
    &poise_mpi_type_unsigned_short,
    &poise_mpi_type_int,
    &poise_mpi_type_unsigned,
    &poise_mpi_type_long,
    &poise_mpi_type_unsigned_long,
    &poise_mpi_type_long_long_int,
    &poise_mpi_type_unsigned_long_long,
    &poise_mpi_type_float,
    &poise_mpi_type_double,
    &poise_mpi_type_long_double,
    &poise_mpi_type_int8_t,
    &poise_mpi_type_int16_t,
    &poise_mpi_type_int32_t,
    &poise_mpi_type_int64_t,
    &poise_mpi_type_uint8_t,
    &poise_mpi_type_uint16_t,
    &poise_mpi_type_uint32_t,
    &poise_mpi_type_uint64_t,
    &poise_mpi_type_aint,
    &poise_mpi_type_count,
    &poise_mpi_type_offset,
    &poise_mpi_type_c_bool,
    &poise_mpi_type_c_float_complex,
    &poise_mpi_type_c_double_complex,
    &poise_mpi_type_c_long_double_complex,
    &poise_mpi_type_cxx_bool,
    &poise_mpi_type_cxx_float_complex,
    &poise_mpi_type_cxx_double_complex,
    &poise_mpi_type_cxx_long_double_complex,
    &poise_mpi_type_packed,
    &poise_mpi_type_integer,
    &poise_mpi_type_real,
    &poise_mpi_type_double_precision,
    &poise_mpi_type_complex,
    &poise_mpi_type_double_complex,
    &poise_mpi_type_logical,
    &poise_mpi_type_character,
    &poise_mpi_type_integer1,
    &poise_mpi_type_integer2,
    &poise_mpi_type_integer4,
    &poise_mpi_type_integer8,
    &poise_mpi_type_real4,
    &poise_mpi_type_real8,
    &poise_mpi_type_complex8,
    &poise_mpi_type_complex16,
    &poise_mpi_type_float_int,
    &poise_mpi_type_double_int,
    &poise_mpi_type_long_int,
    &poise_mpi_type_2int,
    &poise_mpi_type_long_double_int,
    &poise_mpi_type_2integer,
    &poise_mpi_type_2real,
    &poise_mpi_type_2double_precision,
    &poise_mpi_type_short_int,
    &poise_mpi_type_lb,
    &poise_mpi_type_ub,
};

int type_predefined(const struct poise_mpi_datatype *const **types)
{
    *types = all;
    return sizeof(all) / sizeof(all[0]);
}
