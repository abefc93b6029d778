/*
 * What each communicator of the program has got (communicator.c).
 */
#ifndef POISE_COLL_PRELOAD_COMMUNICATOR_H
#define POISE_COLL_PRELOAD_COMMUNICATOR_H

#include <mpi.h>

#include <poise/coll.h>
#include <poise/conditional.h>

enum entry {
    BARRIER,
    BCAST,
    ALLREDUCE,
    REDUCE,
    GATHER,
    SCATTER,
    ALLGATHER,
    ALLTOALL,
    ENTRIES
};
enum reason { BY_TREE, INTER, LONG, TYPE, OTHER, REASONS };

/* What a communicator has got; in order of making, which is the same on all of
 * its ranks with respect to others that they share. */
struct state {
    struct state *next;
    MPI_Comm comm;
    struct poise_world *world; /* NULL: the library serves it */
    struct poise_coll *coll;
    struct poise_coll_if *cond; /* NULL: nothing is conditional here */
};

/* Above 0 while Poise itself calls MPI. */
extern __thread int preload_inside __attribute__((visibility("hidden")));

/* What there is of a communicator, or NULL. */
struct state *preload_find(MPI_Comm comm);
/* Free it. */
void preload_forget(MPI_Comm comm);
/* The trees to use for `bytes` from each rank, or NULL: the library's turn. */
struct poise_coll *preload_trees(enum entry entry, MPI_Comm comm,
                                 uint64_t bytes);
/* What a call over trees returns to the program. */
int preload_result(enum entry entry, MPI_Comm comm, int code);
void preload_count(enum entry entry, enum reason reason);
/* Free all, while MPI runs. */
void preload_end(void);
/* The counts, if they are asked for. */
void preload_report(void);

#endif
