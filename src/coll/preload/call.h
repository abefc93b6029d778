/*
 * A collective call of the program, and how it is served (serve.c): one table
 * says of each collective which buffers it has, how they are checked, and which
 * call of Poise's and of the library's it is.
 */
#ifndef POISE_COLL_PRELOAD_CALL_H
#define POISE_COLL_PRELOAD_CALL_H

#include "communicator.h"

/* A buffer as the program passes it: of one item, of one item for each rank, or
 * of a block for each. */
struct side {
    const void *buffer;
    int number; /* of elements of an item */
    MPI_Datatype type;
    const int *numbers, *places; /* [size] */
};

struct call {
    enum entry entry;
    MPI_Comm comm;
    struct side in, out;
    MPI_Op op;
    int root;         /* -1: none */
    const void *site; /* where the program called */
    bool *right;      /* NULL, or told whether its arguments are right */
};

/* Over trees, or by the library: what MPI's function returns. */
int preload_serve(const struct call *call);

#endif
