/* One rank ends all: the exit status is what it said. */
#include "conform.h"

int main(int argc, char **argv)
{
    int value = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == size - 1) {
        MPI_Abort(MPI_COMM_WORLD, 7);
    }
    /* The others wait for what does not come. */
    MPI_Recv(&value, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    printf("rank %d went on\n", rank);
    MPI_Finalize();
    return 0;
}
