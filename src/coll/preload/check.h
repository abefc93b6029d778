/*
 * Whether the MPI library would refuse the arguments of a call, each as the MPI
 * does that this preload is compiled against (check.c). Such calls are its to
 * refuse: by its error class, through the program's error handler.
 */
#ifndef POISE_COLL_PRELOAD_CHECK_H
#define POISE_COLL_PRELOAD_CHECK_H

#include "communicator.h"

/* A buffer as the program passes it. */
struct side {
    const void *buffer;
    int number;
    MPI_Datatype type;
};

/* All of these are local. True: the arguments are right as far as MPI checks,
 * and `bytes` is what goes from or to each rank. */
bool check_bcast(const struct seat *seat, const struct side *data, int root,
                 uint64_t *bytes);
/* `root` -1: all have the result. */
bool check_reduce(const struct seat *seat, const void *in,
                  const struct side *out, int root, uint64_t *bytes);
/* Gather, scatter, allgather (`root` -1): each rank has `one`, the root, or all
 * of them, have `all`. */
bool check_items(const struct seat *seat, enum entry entry,
                 const struct side *one, const struct side *all, int root,
                 uint64_t *bytes);
bool check_alltoall(const struct side *in, const struct side *out,
                    uint64_t *bytes);
/* `numbers` and `places` are arrays of the communicator's size. */
struct sides {
    const void *buffer;
    const int *numbers, *places;
    MPI_Datatype type;
};
bool check_alltoallv(const struct seat *seat, const struct sides *in,
                     const struct sides *out);

#endif
