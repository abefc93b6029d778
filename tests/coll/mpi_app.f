C     Collectives from Fortran, whose bindings do not go by the C entries.
      program collapp
      implicit none
      include 'mpif.h'
      integer me, n, ierr, total, value
      double precision x(2), y(2)
      call MPI_Init(ierr)
      call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
      call MPI_Comm_size(MPI_COMM_WORLD, n, ierr)
      call MPI_Allreduce(me, total, 1, MPI_INTEGER, MPI_SUM,
     &                   MPI_COMM_WORLD, ierr)
      if (total .ne. n * (n - 1) / 2) call MPI_Abort(MPI_COMM_WORLD, 1,
     &                                               ierr)
      x(1) = me
      x(2) = -me
      call MPI_Allreduce(MPI_IN_PLACE, x, 2, MPI_DOUBLE_PRECISION,
     &                   MPI_MAX, MPI_COMM_WORLD, ierr)
      if (x(1) .ne. n - 1 .or. x(2) .ne. 0) call
     &   MPI_Abort(MPI_COMM_WORLD, 1, ierr)
      y = x
      value = 0
      if (me .eq. n - 1) value = 17
      call MPI_Bcast(value, 1, MPI_INTEGER, n - 1, MPI_COMM_WORLD, ierr)
      if (value .ne. 17) call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
      if (me .eq. 0) print '(A)', 'right fortran'
      call MPI_Finalize(ierr)
      end
