/*
 * Signatures: which basic types follow each other in data, whatever lies
 * between them. What is sent and what is received must have the same.
 *
 * A signature is the hash of a row of basic types. Rows are joined and
 * repeated without walking through them, so that a long one costs no more than
 * the type's own description.
 */
#include "make.h"

/* The base of the hash, a polynomial: odd, so that no power of it is lost. */
#define BASE UINT64_C(0x9e3779b97f4a7c15)

/* Zero elements: {0, 1}. */
struct row {
    uint64_t hash, power;
};

static struct row row_join(struct row a, struct row b)
{
    return (struct row){a.hash * b.power + b.hash, a.power * b.power};
}

static struct row row_repeat(struct row one, size_t count)
{
    struct row row = {0, 1};

    for (; count > 0; count /= 2) {
        if (count % 2 != 0) {
            row = row_join(row, one);
        }
        one = row_join(one, one);
    }
    return row;
}

/* ---- basic types -------------------------------------------------------- */

/* Basic types that are the same to a receiver. */
static enum type_basic likeness(enum type_basic basic)
{
    switch (basic) {
    case TYPE_LOGICAL:
    case TYPE_UINT32:
    case TYPE_WCHAR:
        return TYPE_INT32;
    case TYPE_UINT64:
        return TYPE_INT64;
    case TYPE_UINT16:
        return TYPE_INT16;
    case TYPE_UINT8:
    case TYPE_BOOL:
    case TYPE_CHAR:
        return TYPE_INT8;
    default:
        return basic;
    }
}

static bool is_untyped(enum type_basic basic)
{
    return basic == TYPE_BYTE || basic == TYPE_PACKED;
}

/* The two that a pair consists of; false: it is none. */
static bool halves(enum type_basic basic, enum type_basic *first,
                   enum type_basic *second)
{
    *second = TYPE_INT32;
    switch (basic) {
    case TYPE_FLOAT_INT:
        *first = TYPE_FLOAT;
        return true;
    case TYPE_DOUBLE_INT:
        *first = TYPE_DOUBLE;
        return true;
    case TYPE_LONG_INT:
        *first = TYPE_INT64;
        return true;
    case TYPE_2INT:
        *first = TYPE_INT32;
        return true;
    case TYPE_SHORT_INT:
        *first = TYPE_INT16;
        return true;
    case TYPE_LONG_DOUBLE_INT:
        *first = TYPE_LONG_DOUBLE;
        return true;
    case TYPE_2FLOAT:
        *first = *second = TYPE_FLOAT;
        return true;
    case TYPE_2DOUBLE:
        *first = *second = TYPE_DOUBLE;
        return true;
    default:
        return false;
    }
}

static struct row row_of_basic(enum type_basic basic)
{
    return (struct row){(uint64_t)likeness(basic) + 1, BASE};
}

/* ---- derived types ------------------------------------------------------ */

/* Of one element. */
static struct row row_of(const struct poise_mpi_datatype *type)
{
    enum type_basic first, second;
    struct row row = {0, 1};

    if (halves(type->basic, &first, &second)) {
        row = row_join(row_of_basic(first), row_of_basic(second));
        return row_repeat(row, type->elements / 2);
    }
    if (type->basic != TYPE_NONE) {
        return row_repeat(row_of_basic(type->basic), type->elements);
    }
    if (type->combiner != MPI_COMBINER_STRUCT) {
        /* All of one type: how it is arranged does not matter here. */
        const struct poise_mpi_datatype *part = type->types[0];
        return row_repeat(row_of(part),
                          part->size > 0 ? type->size / part->size : 0);
    }
    for (int i = 0; i < type->type_count; i++) {
        row = row_join(row, row_repeat(row_of(type->types[i]),
                                       (size_t)type->integers[1 + i]));
    }
    return row;
}

/* What is left of the first bytes of `count` elements, behind `row`. */
static struct row row_begin(struct row row,
                            const struct poise_mpi_datatype *type, size_t count,
                            size_t *left)
{
    size_t whole = type->size > 0 ? *left / type->size : 0;

    whole = whole > count ? count : whole;
    if (whole > 0) {
        row = row_join(row, row_repeat(row_of(type), whole));
        *left -= whole * type->size;
    }
    if (whole == count || *left == 0) {
        return row;
    }
    if (type->type_count == 0) {
        /* Within a basic element, or a pair. */
        *left = 0;
        return row_join(row, row_of_basic(TYPE_MARK));
    }
    if (type->combiner != MPI_COMBINER_STRUCT) {
        return row_begin(row, type->types[0], SIZE_MAX, left);
    }
    for (int i = 0; i<type->type_count && * left> 0; i++) {
        row =
            row_begin(row, type->types[i], (size_t)type->integers[1 + i], left);
    }
    return row;
}

struct type_signature type_sign(const struct poise_mpi_datatype *type,
                                size_t bytes)
{
    return (struct type_signature){
        .hash = row_begin((struct row){0, 1}, type, SIZE_MAX, &bytes).hash,
        .basic = type->basic};
}

bool type_agrees(const struct poise_mpi_datatype *type, size_t bytes,
                 const struct type_signature *sent)
{
    return bytes == 0 || is_untyped(type->basic) || is_untyped(sent->basic) ||
           type_sign(type, bytes).hash == sent->hash;
}

const char *type_basic_name(enum type_basic basic)
{
    const struct poise_mpi_datatype *const *types;
    int count = type_predefined(&types);

    for (int i = 0; i < count && basic != TYPE_NONE; i++) {
        if (types[i]->basic == basic && types[i]->first_name != NULL) {
            return types[i]->first_name;
        }
    }
    return "several types";
}
