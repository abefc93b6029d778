/*
 * Data in the representation "external32": integers and floating-point numbers
 * of fixed sizes, the most significant byte first. Both sides of a conversion
 * are packed, so that only the row of basic types counts. Long integers have
 * four bytes there and wide characters two: what does not fit is an error.
 * Source: MPI 3.1, 13.5.2.
 */
#include <string.h>

#include "make.h"
#include "vrank/mpi/comm.h"

/* A number: its bytes here and there. */
struct part {
    unsigned native, external;
    bool is_signed, is_quad;
};

/* Where a conversion has got to. */
struct converter {
    const char *from;
    char *to;
    bool out; /* to external32 */
};

/* ---- basic types -------------------------------------------------------- */

/* What an element of a predefined type consists of; how many parts. */
static int parts_of(const struct poise_mpi_datatype *type, struct part parts[2])
{
    static const struct part integer = {4, 4, true, false},
                             long_integer = {8, 4, true, false},
                             quad = {sizeof(long double), 16, false, true};
    unsigned size = (unsigned)type->size;

    parts[0] = (struct part){.native = size, .external = size};
    parts[1] = integer;
    switch (type->basic) {
    case TYPE_MARK:
        return 0;
    case TYPE_LONG_DOUBLE:
        parts[0] = quad;
        return 1;
    case TYPE_LONG_DOUBLE_COMPLEX:
        parts[0] = parts[1] = quad;
        return 2;
    case TYPE_FLOAT_COMPLEX:
    case TYPE_DOUBLE_COMPLEX:
    case TYPE_2INT:
    case TYPE_2FLOAT:
    case TYPE_2DOUBLE:
        parts[0].native = parts[0].external = size / 2;
        parts[1] = parts[0];
        return 2;
    case TYPE_LONG_DOUBLE_INT:
        parts[0] = quad;
        return 2;
    case TYPE_LONG_INT:
        parts[0] = long_integer;
        return 2;
    case TYPE_FLOAT_INT:
    case TYPE_DOUBLE_INT:
    case TYPE_SHORT_INT:
        parts[0].native = parts[0].external = size - integer.native;
        return 2;
    case TYPE_WCHAR:
        parts[0].external = 2;
        return 1;
    default:
        if (type == MPI_LONG || type == MPI_UNSIGNED_LONG) {
            parts[0].external = 4;
            parts[0].is_signed = type == MPI_LONG;
        }
        return 1;
    }
}

static uint64_t load(const char *from, unsigned bytes)
{
    uint8_t one;
    uint16_t two;
    uint32_t four;
    uint64_t eight;

    switch (bytes) {
    case 1:
        memcpy(&one, from, sizeof one);
        return one;
    case 2:
        memcpy(&two, from, sizeof two);
        return two;
    case 4:
        memcpy(&four, from, sizeof four);
        return four;
    default:
        memcpy(&eight, from, sizeof eight);
        return eight;
    }
}

static void store(char *to, unsigned bytes, uint64_t value)
{
    uint8_t one = (uint8_t)value;
    uint16_t two = (uint16_t)value;
    uint32_t four = (uint32_t)value;

    switch (bytes) {
    case 1:
        memcpy(to, &one, sizeof one);
        break;
    case 2:
        memcpy(to, &two, sizeof two);
        break;
    case 4:
        memcpy(to, &four, sizeof four);
        break;
    default:
        memcpy(to, &value, sizeof value);
        break;
    }
}

static void store_big(char *to, unsigned bytes, uint64_t value)
{
    for (unsigned i = bytes; i > 0; i--) {
        to[i - 1] = (char)(value & 0xff);
        value >>= 8;
    }
}

static uint64_t load_big(const char *from, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++) {
        value = value << 8 | (unsigned char)from[i];
    }
    return value;
}

/* `value` of fewer bits, as a number of 64. */
static uint64_t widen(uint64_t value, const struct part *part)
{
    unsigned bits = 8 * part->external;
    bool is_negative = part->is_signed && value >> (bits - 1) & 1;

    return is_negative ? value | UINT64_MAX << bits : value;
}

/* The compiler's number of 128 bits, where long double has fewer. */
#if __LDBL_MANT_DIG__ == 113
typedef long double quad_number;
#else
__extension__ typedef __float128 quad_number;
#endif

static void quad_out(const char *from, char *to)
{
    long double value;
    quad_number quad;
    char bytes[16];

    memcpy(&value, from, sizeof value);
    quad = (quad_number)value;
    memcpy(bytes, &quad, sizeof bytes);
    store_big(to, 8, load(bytes + 8, 8));
    store_big(to + 8, 8, load(bytes, 8));
}

static void quad_in(const char *from, char *to)
{
    long double value = 0;
    quad_number quad;
    char bytes[16];

    store(bytes + 8, 8, load_big(from, 8));
    store(bytes, 8, load_big(from + 8, 8));
    memcpy(&quad, bytes, sizeof quad);
    value = (long double)quad;
    memset(to, 0, sizeof value);
    memcpy(to, &value, sizeof value);
}

/* An error class. The two sides may be the same place. */
static int convert_part(struct converter *converter, const struct part *part)
{
    const char *from = converter->from;
    char *to = converter->to;
    uint64_t value;

    converter->from += converter->out ? part->native : part->external;
    converter->to += converter->out ? part->external : part->native;
    if (part->is_quad) {
        if (converter->out) {
            quad_out(from, to);
        } else {
            quad_in(from, to);
        }
        return MPI_SUCCESS;
    }
    if (!converter->out) {
        value = load_big(from, part->external);
        store(to, part->native,
              part->external < part->native ? widen(value, part) : value);
        return MPI_SUCCESS;
    }
    value = load(from, part->native);
    store_big(to, part->external, value);
    return part->external == part->native ||
                   widen(load_big(to, part->external), part) == value
               ? MPI_SUCCESS
               : MPI_ERR_CONVERSION;
}

/* ---- any type ----------------------------------------------------------- */

static size_t times(const struct poise_mpi_datatype *type, int i)
{
    size_t size = type->types[i]->size;

    if (type->combiner == MPI_COMBINER_STRUCT) {
        return (size_t)type->integers[1 + i];
    }
    return size > 0 ? type->size / size : 0;
}

/* How many of its types have data of their own. */
static int type_parts(const struct poise_mpi_datatype *type)
{
    return type->combiner == MPI_COMBINER_STRUCT ? type->type_count : 1;
}

static int convert(struct converter *converter,
                   const struct poise_mpi_datatype *type, size_t count)
{
    struct part parts[2];
    int part_count = type->predefined ? parts_of(type, parts) : 0;
    int code = MPI_SUCCESS;

    for (; count > 0 && code == MPI_SUCCESS; count--) {
        for (int i = 0; i < part_count && code == MPI_SUCCESS; i++) {
            code = convert_part(converter, &parts[i]);
        }
        for (int i = 0;
             !type->predefined && i < type_parts(type) && code == MPI_SUCCESS;
             i++) {
            code = convert(converter, type->types[i], times(type, i));
        }
    }
    return code;
}

size_t type_external_bytes(const struct poise_mpi_datatype *type)
{
    struct part parts[2];
    size_t bytes = 0;

    if (type->predefined) {
        for (int i = parts_of(type, parts); i > 0; i--) {
            bytes += parts[i - 1].external;
        }
        return bytes;
    }
    for (int i = 0; i < type_parts(type); i++) {
        bytes += times(type, i) * type_external_bytes(type->types[i]);
    }
    return bytes;
}

int type_to_external(const struct poise_mpi_datatype *type, size_t count,
                     const char *packed, char *external)
{
    struct converter converter = {.from = packed, .to = external, .out = true};

    return convert(&converter, type, count);
}

int type_from_external(const struct poise_mpi_datatype *type, size_t count,
                       const char *external, char *packed)
{
    struct converter converter = {.from = external, .to = packed};

    return convert(&converter, type, count);
}
