/*
 * How derived types are put together: for this room only.
 */
#ifndef POISE_VRANK_TYPE_MAKE_H
#define POISE_VRANK_TYPE_MAKE_H

#include "type.h"

/* What is known of a type while its parts are placed. */
struct type_maker {
    MPI_Datatype type;    /* being made; owned */
    size_t first, placed; /* parts so far, from the first that counts */
    bool has_data, has_true;
    ptrdiff_t data_lb, data_ub; /* of parts whose bounds are their data's */
    ptrdiff_t mark_lb, mark_ub; /* of parts whose bounds were set */
};

/**
 * Begin a type that remembers so many integers, addresses and types, and has
 * room for `parts` parts. Returns MPI_SUCCESS or MPI_ERR_NO_MEM.
 */
int type_make_begin(struct type_maker *maker, int combiner, int integers,
                    int addresses, int types, size_t parts);
/** Remember the next of the types that it is made of, which thereby stays. */
void type_make_remember(struct type_maker *maker, MPI_Datatype old);
/** Place `count` elements of `old`, which is remembered, at `offset`. */
void type_make_place(struct type_maker *maker, MPI_Datatype old, size_t count,
                     ptrdiff_t offset);
/** What was placed, again and again: `count` times, `stride` bytes apart. One
 * part was placed. */
void type_make_repeat(struct type_maker *maker, size_t count, ptrdiff_t stride);
/** The type is the list of what was placed: work out the bounds and hand it
 * over. */
MPI_Datatype type_make_end(struct type_maker *maker);
/** The type is `old`, which is remembered, as it is but not committed. */
void type_make_same(struct type_maker *maker, MPI_Datatype old);
/** Set the bounds of what is otherwise finished. */
void type_make_bounds(struct type_maker *maker, ptrdiff_t lb, ptrdiff_t ub);

/* What follows returns MPI_SUCCESS or a class of error, which it does not
 * hand to a handler. */

/** `count` blocks of `blocklength` elements, `stride` bytes apart. Has room
 * for one more integer. */
int type_make_hvector(int count, int blocklength, ptrdiff_t stride,
                      MPI_Datatype old, MPI_Datatype *out);
/** `old` with other bounds. */
int type_make_resized(MPI_Datatype old, MPI_Aint lb, MPI_Aint extent,
                      MPI_Datatype *out);
/** What a duplicate gets of the attributes. */
int type_copy_attributes(MPI_Datatype from, MPI_Datatype to);
/** At the end of a type: the code of a delete function that failed. */
int type_clear_attributes(MPI_Datatype type);

/** Hand an error of a function on types to the handler in charge. */
int type_fail(const char *call, int code);

#endif /* POISE_VRANK_TYPE_MAKE_H */
