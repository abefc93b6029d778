/*
 * Whether the MPI library would refuse the arguments of a call, each as the MPI
 * does that this preload is compiled against (check.c). Such calls are its to
 * refuse: by its error class, through the program's error handler.
 */
#ifndef POISE_COLL_PRELOAD_CHECK_H
#define POISE_COLL_PRELOAD_CHECK_H

#include "call.h"

/* All of these are local. True: the arguments are right as far as MPI checks,
 * and `bytes` is what goes from or to each rank; 0 where only each rank knows
 * that of itself. */
typedef bool (*check_fn)(const struct seat *seat, const struct call *call,
                         uint64_t *bytes);

bool check_barrier(const struct seat *seat, const struct call *call,
                   uint64_t *bytes);
bool check_bcast(const struct seat *seat, const struct call *call,
                 uint64_t *bytes);
/* All reductions; of elements that lie as bytes in order. */
bool check_reduce(const struct seat *seat, const struct call *call,
                  uint64_t *bytes);
/* Gather, scatter, allgather: each rank has one item, the root, or all of them,
 * have all. */
bool check_items(const struct seat *seat, const struct call *call,
                 uint64_t *bytes);
bool check_alltoall(const struct seat *seat, const struct call *call,
                    uint64_t *bytes);
bool check_alltoallv(const struct seat *seat, const struct call *call,
                     uint64_t *bytes);
/* Gatherv, scatterv, allgatherv: as check_items. */
bool check_blocks(const struct seat *seat, const struct call *call,
                  uint64_t *bytes);

#endif
