/*
 * What the functions that Fortran programs call have in common. tools/fortran
 * writes most of them, from mpi_functions.h; fortran.c and attr.c have
 * the rest. They are linked into the program (libpoise-fort.a), so that each
 * virtual rank has its own state of them.
 */
#ifndef POISE_VRANK_FORTRAN_H
#define POISE_VRANK_FORTRAN_H

#include "vrank/mpi/mpi.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/** More than any text that MPI gives. */
#define FORT_TEXT 1040

/** MPI_BOTTOM and its kin: what the program passes is their address. mpif.h
 * has the same order. */
extern struct fort_marks {
    MPI_Fint status[6], statuses[6], bottom, in_place, unweighted,
        weights_empty;
} poise_mpi_marks_;

/** The buffer, or what C has for a mark. */
static inline const void *fort_buffer(const void *buffer)
{
    return buffer == &poise_mpi_marks_.bottom     ? MPI_BOTTOM
           : buffer == &poise_mpi_marks_.in_place ? MPI_IN_PLACE
                                                  : buffer;
}

static inline int *fort_weights(const int *weights)
{
    return weights == &poise_mpi_marks_.unweighted ? MPI_UNWEIGHTED
           : weights == &poise_mpi_marks_.weights_empty
               ? MPI_WEIGHTS_EMPTY
               : (int *)(uintptr_t)weights;
}

/** A status in C, and what came back into Fortran's, which is the same bytes
 * but need not be aligned. */
static inline MPI_Status *fort_status(const MPI_Fint *status, MPI_Status *own)
{
    return status == poise_mpi_marks_.status ? MPI_STATUS_IGNORE : own;
}
static inline void fort_status_back(MPI_Fint *status, const MPI_Status *own)
{
    if (status != poise_mpi_marks_.status) {
        memcpy(status, own, sizeof *own);
    }
}

/** Arrays of `count`, made for a call; `_back` frees them. Without memory the
 * job ends. */
MPI_Request *fort_requests(int count, const MPI_Fint *requests);
void fort_requests_back(int count, MPI_Fint *requests, MPI_Request *own);
MPI_Status *fort_statuses(int count, const MPI_Fint *statuses);
void fort_statuses_back(int count, MPI_Fint *statuses, MPI_Status *own);

/** A text that ends with a 0, to be freed, of one that blanks fill up. */
char *fort_text(const char *text, size_t length);
/** ... without the blanks in front. */
char *fort_key(const char *text, size_t length);
void fort_text_back(char *text, size_t length, const char *own);

#endif /* POISE_VRANK_FORTRAN_H */
