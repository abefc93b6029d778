/*
 * MPI's files.
 *
 *   file.c        opening and closing, sizes, views, pointers, error handlers
 *   view.c        where the data of a view lies in the file, and moving it
 *   io.c          the functions that read and write
 *
 * Each rank has the file open for itself. A transfer happens at once, in the
 * call that begins it: files do not wait for other ranks, so that collective
 * ones are independent ones, and non-blocking ones are done when they return.
 * The pointer that ranks share is a number in a file beside the data, made
 * when it is first used and removed when the last rank closes.
 */
#ifndef POISE_VRANK_FILE_INTERNAL_H
#define POISE_VRANK_FILE_INTERNAL_H

#include "file.h"
#include "vrank/communicator/communicator.h"

struct poise_mpi_file {
    struct vrank_mpi *mpi;
    struct poise_mpi_comm *comm; /* of its own */
    struct poise_mpi_file *next; /* of its rank */
    int fd;
    int amode;
    bool atomic;
    char *path; /* owned */
    MPI_Errhandler handler;
    /* The view. */
    MPI_Offset disp;
    MPI_Datatype etype, filetype; /* held */
    bool external;                /* the data is in external32 */
    MPI_Offset position;          /* this rank's pointer, in etypes */
    /* The shared pointer. */
    char *shared_path;       /* owned */
    int shared_fd;           /* -1: not used yet */
    MPI_Offset shared_start; /* where it begins, in etypes */
    /* What an _end has to report of the _begin before. */
    bool has_split;
    size_t split_bytes;
};

/* ---- view.c ------------------------------------------------------------- */

/* The place in the file of byte `at` of the view's data. */
MPI_Offset file_place(const struct poise_mpi_file *file, MPI_Offset at);
/* Bytes of the view's data that lie before place `end` of the file. */
MPI_Offset file_before(const struct poise_mpi_file *file, MPI_Offset end);
/* Whether a view may be made of a type: no data before the beginning, none that
 * goes back, and where it is written none twice. Source: MPI 3.1, 13.3. */
bool file_type_fits(MPI_Datatype type, bool writes);
/* Read or write `data` at byte `at` of the view's data. *done: how many bytes
 * were moved; fewer at the end of the file. An error class. */
int file_move(struct poise_mpi_file *file, MPI_Offset at,
              const struct mpi_data *data, bool writes, size_t *done);
/* Take `count` etypes from the shared pointer; *was is where it was. */
int file_shared_take(struct poise_mpi_file *file, MPI_Offset count,
                     MPI_Offset *was);
/* Set it; one rank does. */
int file_shared_set(struct poise_mpi_file *file, MPI_Offset to);

/* ---- file.c ------------------------------------------------------------- */

/* The class of a system's error, as a negative errno or a positive one. */
int file_class(int code);
/* Do what the handler of the file (NULL: of none) says about an error. */
int file_fail(struct vrank_mpi *mpi, MPI_File file, int code, const char *what);

#endif
