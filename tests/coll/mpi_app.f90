! An MPI program by mpi_f08 that knows nothing of Poise and checks its answers.
program app
  use mpi_f08
  implicit none
  integer :: me, n, i, sum, before, part
  integer, allocatable :: counts(:), places(:), all(:), ones(:)
  type(MPI_Comm) :: comm
  call MPI_Init()
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  call MPI_Comm_rank(comm, me)
  call MPI_Comm_size(comm, n)
  allocate (counts(n), places(n), all(n), ones(n))
  sum = me
  call MPI_Allreduce(MPI_IN_PLACE, sum, 1, MPI_INTEGER, MPI_SUM, comm)
  if (sum /= n * (n - 1) / 2) call fail("allreduce in place")
  before = -1
  call MPI_Exscan(me, before, 1, MPI_INTEGER, MPI_SUM, comm)
  if (me > 0 .and. before /= me * (me - 1) / 2) call fail("exscan")
  do i = 1, n
    counts(i) = 1
    places(i) = n - i
  end do
  all = -1
  call MPI_Allgatherv(me, 1, MPI_INTEGER, all, counts, places, MPI_INTEGER, comm)
  do i = 1, n
    if (all(i) /= n - i) call fail("allgatherv")
  end do
  ones = me
  call MPI_Reduce_scatter(ones, part, counts, MPI_INTEGER, MPI_SUM, comm)
  if (part /= sum) call fail("reduce_scatter")
  sum = me * 7
  call MPI_Bcast(sum, 1, MPI_INTEGER, n - 1, comm)
  if (sum /= (n - 1) * 7) call fail("bcast")
  call MPI_Barrier(comm)
  call MPI_Comm_free(comm)
  if (me == 0) print '(a)', "right f08"
  call MPI_Finalize()
contains
  subroutine fail(what)
    character(*), intent(in) :: what
    print '(2a)', what, " is wrong"
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine
end program
