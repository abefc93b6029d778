C     Goes on while the sum of what the ranks give is large.
      program loop
      include 'mpif.h'
      integer rank, rounds, err
      double precision mine, total
      call MPI_INIT(err)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, err)
      rounds = 0
      mine = 64 * (rank + 1)
 10   call MPI_ALLREDUCE(mine, total, 1, MPI_DOUBLE_PRECISION,
     &     MPI_SUM, MPI_COMM_WORLD, err)
      rounds = rounds + 1
      mine = mine / 2
      if (total .gt. 0.001d0) goto 10
      if (rank .eq. 0) print *, 'rounds', rounds
      call MPI_FINALIZE(err)
      end
