/*
 * Data types and operations.
 *
 * A type is described by a plan: what to copy, as blocks, loops and lists,
 * normalised when the type is made. Packing walks the plan once, and can begin
 * and end at any byte of the packed data.
 *
 * Predefined types and operations are constants, shared by all ranks. Others
 * belong to the rank that made them, but may be held by one that copies from or
 * to that rank: references are counted atomically.
 */
#ifndef POISE_VRANK_TYPE_H
#define POISE_VRANK_TYPE_H

#include <poise/core.h>

#include "vrank/mpi/inside.h"

struct mpi_attributes;

/* What an operation needs to know of a basic type. */
enum type_basic {
    TYPE_NONE, /* not one basic type only */
    TYPE_INT8,
    TYPE_INT16,
    TYPE_INT32,
    TYPE_INT64,
    TYPE_UINT8,
    TYPE_UINT16,
    TYPE_UINT32,
    TYPE_UINT64,
    TYPE_FLOAT,
    TYPE_DOUBLE,
    TYPE_LONG_DOUBLE,
    TYPE_FLOAT_COMPLEX,
    TYPE_DOUBLE_COMPLEX,
    TYPE_LONG_DOUBLE_COMPLEX,
    TYPE_BOOL,    /* C's and C++'s, one byte */
    TYPE_LOGICAL, /* Fortran's */
    TYPE_BYTE,
    TYPE_CHAR, /* characters: no arithmetic */
    TYPE_WCHAR,
    TYPE_PACKED,
    TYPE_FLOAT_INT, /* a value and its index */
    TYPE_DOUBLE_INT,
    TYPE_LONG_INT,
    TYPE_2INT,
    TYPE_SHORT_INT,
    TYPE_LONG_DOUBLE_INT,
    TYPE_2FLOAT,
    TYPE_2DOUBLE,
    TYPE_MARK, /* MPI_LB, MPI_UB */
    TYPE_BASICS
};

enum type_kind { TYPE_EMPTY, TYPE_BLOCK, TYPE_LOOP, TYPE_LIST };

/* Part of a plan: `size` bytes of data, from `offset` on. */
struct type_node {
    enum type_kind kind;
    size_t size;
    size_t before;                 /* data of the list before this entry */
    ptrdiff_t offset;              /* from where the parent says */
    size_t count;                  /* of a loop or a list */
    ptrdiff_t stride;              /* of a loop, in bytes */
    const struct type_node *child; /* of a loop: one; of a list: `count` */
};

struct poise_mpi_datatype {
    int references; /* atomic; predefined types have none */
    bool committed;
    bool predefined;
    bool dense; /* `count` of them are count * size bytes from offset 0 */
    enum type_basic basic; /* what all of it consists of */
    size_t elements;       /* basic ones in it */
    size_t size;           /* bytes of data, without gaps */
    ptrdiff_t lb, ub;      /* ub - lb: the extent */
    ptrdiff_t true_lb, true_ub;
    ptrdiff_t align;         /* what a struct rounds its extent up to */
    bool has_lb, has_ub;     /* set by the program, not by the data */
    struct type_node root;   /* of one element */
    struct type_node *nodes; /* owned: what root leads to, of this type */

    /* How it was made; all owned, the types referenced. */
    int combiner;
    int integer_count, address_count, type_count;
    int hidden_types; /* of them at the end: none of the user's */
    int *integers;
    MPI_Aint *addresses;
    MPI_Datatype *types;

    char *name;                        /* owned; NULL: none */
    const char *first_name;            /* of a predefined one */
    struct mpi_attributes *attributes; /* owned; NULL: none */
};

static inline ptrdiff_t type_extent(const struct poise_mpi_datatype *type)
{
    return type->ub - type->lb;
}

/** The same type once more; release it with type_release. */
MPI_Datatype type_hold(MPI_Datatype type);
/** Give a reference back; the last one frees. NULL and predefined: nothing. */
void type_release(MPI_Datatype type);

/** Bytes that `count` elements pack into. */
static inline size_t type_bytes(const struct poise_mpi_datatype *type,
                                size_t count)
{
    return type->size * count;
}

/**
 * Copy bytes [from, from + bytes) of the packed form of `count` elements at
 * `buf` to `out`. The range lies within type_bytes.
 */
void type_pack(const struct poise_mpi_datatype *type, size_t count,
               const void *buf, size_t from, size_t bytes, void *out);
/** The other way: `in` becomes bytes [from, from + bytes) of `buf`. */
void type_unpack(const struct poise_mpi_datatype *type, size_t count, void *buf,
                 size_t from, size_t bytes, const void *in);
/**
 * Copy the first `bytes` bytes of data from one buffer to another; each
 * has room for them. One pass; if neither is dense, through a little buffer
 * that stays in the cache. The buffers do not overlap.
 */
void type_copy(const struct poise_mpi_datatype *from_type, size_t from_count,
               const void *from, const struct poise_mpi_datatype *to_type,
               size_t to_count, void *to, size_t bytes);

/** How many basic elements `bytes` bytes of a row of elements hold; -1 if
 * they end within one. */
MPI_Count type_elements(const struct poise_mpi_datatype *type, size_t bytes);

/** Which basic types data consists of, in order: `basic` if they are one. */
struct type_signature {
    uint64_t hash;
    uint32_t basic;
};
/** Of the first `bytes` bytes of data of a row of elements. */
struct type_signature type_sign(const struct poise_mpi_datatype *type,
                                size_t bytes);
/** Whether `bytes` bytes, sent as `sent`, may be received in a row of elements:
 * signed and unsigned are taken as the same, bytes and packed data on trust. */
bool type_agrees(const struct poise_mpi_datatype *type, size_t bytes,
                 const struct type_signature *sent);
/** How MPI calls a basic type; "several types" for TYPE_NONE. */
const char *type_basic_name(enum type_basic basic);

/** Bytes of an element in the representation "external32". */
size_t type_external_bytes(const struct poise_mpi_datatype *type);
/** Convert `count` packed elements to it, and back; where sizes agree the two
 * may be the same place. MPI_ERR_CONVERSION: a number does not fit. */
int type_to_external(const struct poise_mpi_datatype *type, size_t count,
                     const char *packed, char *external);
int type_from_external(const struct poise_mpi_datatype *type, size_t count,
                       const char *external, char *packed);

/** The predefined types in a fixed order, the index being the handle that
 * Fortran sees; returns how many. */
int type_predefined(const struct poise_mpi_datatype *const **types);

/* ---- making plans: for this room ---------------------------------------- */

/** `node` moved by `offset` bytes. */
struct type_node type_node_moved(const struct type_node *node,
                                 ptrdiff_t offset);
/**
 * `count` times `child` (which lies in `type`, at an address that stays),
 * `stride` bytes apart. Needs no memory: what is equal to a block becomes one.
 */
struct type_node type_node_loop(const struct type_node *child, size_t count,
                                ptrdiff_t stride);
/** A list of the entries, whose `before` it fills in and of which it joins
 * what is adjacent; they must stay. */
struct type_node type_node_list(struct type_node *entries, size_t count);

/* ---- operations --------------------------------------------------------- */

/* inout[i] = in[i] op inout[i], for `count` basic elements. */
typedef void op_function(const void *in, void *inout, size_t count);

struct poise_mpi_op {
    int references; /* atomic; predefined ones have none */
    bool predefined;
    bool commutative;
    op_function *const *functions; /* [TYPE_BASICS] of a predefined one */
    MPI_User_function *user;
    const char *name;
};

MPI_Op op_hold(MPI_Op op);
void op_release(MPI_Op op);
/** MPI_SUCCESS, or the class of error of applying `op` to `type`. */
int op_check(MPI_Op op, MPI_Datatype type);
/** inout = in op inout, of `count` elements of `type`: `in` is of the lower
 * rank. */
void op_apply(MPI_Op op, MPI_Datatype type, size_t count, const void *in,
              void *inout);
/** What a predefined operation does with a type that op_check allows, and how
 * many there are of what it works on in `*count` elements. */
op_function *op_of_basic(MPI_Op op, MPI_Datatype type, size_t *count);
/** The predefined operations, as type_predefined. */
int op_predefined(const struct poise_mpi_op *const **ops);

#endif /* POISE_VRANK_TYPE_H */
