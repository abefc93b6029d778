/*
 * The wing's own view of mpi.h: every function goes by its linker name
 * poise_MPI_..., and the predefined objects are constants. All rooms behind
 * MPI's functions, and their tests, include this and never "mpi.h".
 */
#ifndef POISE_VRANK_INSIDE_H
#define POISE_VRANK_INSIDE_H

#define POISE_MPI_INSIDE
#include "mpi.h"

#endif /* POISE_VRANK_INSIDE_H */
