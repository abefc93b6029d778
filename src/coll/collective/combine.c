/*
 * Operations on types: one loop for each pair, from one table, so that
 * compilers can make vector code of them.
 */
#include "internal.h"

#if defined(__GNUC__) && !defined(__clang__)
/* At the level of the rest gcc makes vector code only of loops of known
 * length. */
#pragma GCC optimize("O3")
#endif

/* TYPE, its name in C, and one as wide in which overflow wraps. */
#define INTEGERS(X)                                                            \
    X(POISE_INT8, int8_t, uint8_t)                                             \
    X(POISE_INT16, int16_t, uint16_t)                                          \
    X(POISE_INT32, int32_t, uint32_t)                                          \
    X(POISE_INT64, int64_t, uint64_t)                                          \
    X(POISE_UINT8, uint8_t, uint8_t)                                           \
    X(POISE_UINT16, uint16_t, uint16_t)                                        \
    X(POISE_UINT32, uint32_t, uint32_t)                                        \
    X(POISE_UINT64, uint64_t, uint64_t)
#define REALS(X)                                                               \
    X(POISE_FLOAT, float, float)                                               \
    X(POISE_DOUBLE, double, double)

#define LOOP(expression)                                                       \
    for (size_t i = 0; i < count; i++) {                                       \
        a[i] = (expression);                                                   \
    }                                                                          \
    break

#define ORDER_CASES(greater, less)                                             \
    case POISE_OP_MAX:                                                         \
        LOOP(greater ? b[i] : a[i]);                                           \
    case POISE_OP_MIN:                                                         \
        LOOP(less ? b[i] : a[i]);

/* Unsigned arithmetic of at least 32 bits: no signed overflow, and none by
 * promotion of short types either. */
#define FOLD_INTEGER(name, type, wide)                                         \
    static void fold_##type(enum poise_coll_op op, void *acc, const void *in,  \
                            size_t count)                                      \
    {                                                                          \
        type *restrict a = acc;                                                \
        const type *restrict b = in;                                           \
        switch (op) {                                                          \
            ORDER_CASES(b[i] > a[i], b[i] < a[i])                              \
        case POISE_OP_SUM:                                                     \
            LOOP((type)(wide)((uint64_t)a[i] + (uint64_t)b[i]));               \
        case POISE_OP_PROD:                                                    \
            LOOP((type)(wide)((uint64_t)a[i] * (uint64_t)b[i]));               \
        case POISE_OP_BAND:                                                    \
            LOOP((type)(a[i] & b[i]));                                         \
        case POISE_OP_BOR:                                                     \
            LOOP((type)(a[i] | b[i]));                                         \
        case POISE_OP_BXOR:                                                    \
            LOOP((type)(a[i] ^ b[i]));                                         \
        case POISE_OP_LAND:                                                    \
            LOOP(a[i] && b[i]);                                                \
        case POISE_OP_LOR:                                                     \
            LOOP(a[i] || b[i]);                                                \
        case POISE_OP_LXOR:                                                    \
            LOOP(!a[i] != !b[i]);                                              \
        default:                                                               \
            break;                                                             \
        }                                                                      \
    }

#define FOLD_REAL(name, type, wide)                                            \
    static void fold_##type(enum poise_coll_op op, void *acc, const void *in,  \
                            size_t count)                                      \
    {                                                                          \
        type *restrict a = acc;                                                \
        const type *restrict b = in;                                           \
        switch (op) {                                                          \
            ORDER_CASES(b[i] > a[i] || a[i] != a[i],                           \
                        b[i] < a[i] || a[i] != a[i])                           \
        case POISE_OP_SUM:                                                     \
            LOOP(a[i] + b[i]);                                                 \
        case POISE_OP_PROD:                                                    \
            LOOP(a[i] * b[i]);                                                 \
        default:                                                               \
            break;                                                             \
        }                                                                      \
    }

INTEGERS(FOLD_INTEGER)
REALS(FOLD_REAL)

struct type_row {
    size_t bytes;
    bool real;
    void (*combine)(enum poise_coll_op op, void *acc, const void *in,
                    size_t count);
};

#define ROW_INTEGER(name, type, wide)                                          \
    [name] = {sizeof(type), false, fold_##type},
#define ROW_REAL(name, type, wide) [name] = {sizeof(type), true, fold_##type},

static const struct type_row rows[POISE_COLL_TYPES] = {INTEGERS(ROW_INTEGER)
                                                           REALS(ROW_REAL)};

size_t coll_type_bytes(enum poise_coll_type type)
{
    return rows[type].bytes;
}

bool coll_op_fits(enum poise_coll_type type, enum poise_coll_op op)
{
    return type < POISE_COLL_TYPES && op < POISE_COLL_OPS &&
           (!rows[type].real || op <= POISE_OP_MAX);
}

void coll_combine(enum poise_coll_type type, enum poise_coll_op op, void *acc,
                  const void *in, size_t count)
{
    rows[type].combine(op, acc, in, count);
}
