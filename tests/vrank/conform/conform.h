/*
 * Programs of plain MPI whose output says what MPI did. They are compiled by
 * `poise cc` and by the compiler of a real MPI, and must print the same: see
 * ./run. Each rank collects what it has to say; at the end rank 0 prints it in
 * rank order.
 */
#ifndef POISE_TESTS_CONFORM_H
#define POISE_TESTS_CONFORM_H

#include <mpi.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;
static char said[65536];
static int said_length;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
    int room = (int)sizeof said - said_length;
    va_list args;

    va_start(args, format);
    said_length += vsnprintf(said + said_length, (size_t)room, format, args);
    va_end(args);
    if (said_length >= (int)sizeof said) {
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static inline void say_ints(const char *what, const int *data, int count)
{
    say("%s:", what);
    for (int i = 0; i < count; i++) {
        say(" %d", data[i]);
    }
    say("\n");
}

static inline void say_doubles(const char *what, const double *data, int count)
{
    say("%s:", what);
    for (int i = 0; i < count; i++) {
        say(" %.17g", data[i]);
    }
    say("\n");
}

static void begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

/* Print what all have said; the program ends with this. */
static int end(void)
{
    if (rank != 0) {
        MPI_Send(said, said_length, MPI_CHAR, 0, 99, MPI_COMM_WORLD);
    }
    for (int from = 0; rank == 0 && from < size; from++) {
        if (from > 0) {
            MPI_Status status;
            MPI_Recv(said, sizeof said, MPI_CHAR, from, 99, MPI_COMM_WORLD,
                     &status);
            MPI_Get_count(&status, MPI_CHAR, &said_length);
        }
        printf("rank %d of %d\n%.*s", from, size, said_length, said);
    }
    MPI_Finalize();
    return 0;
}

#endif
