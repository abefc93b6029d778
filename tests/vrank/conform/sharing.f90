! Collectives from Fortran, with and without waiting, and among neighbours.
! Lines say which rank wrote them: the comparison sorts them.
module results
  use mpi
  implicit none
  integer :: rank, size, world = MPI_COMM_WORLD, ierr
contains
  subroutine show(what, values)
    character(len=*), intent(in) :: what
    integer, intent(in) :: values(:)
    write(*,'(a,i3,a,16i6)') what, rank, ':', values
  end subroutine
  subroutine finish(request)
    integer, intent(inout) :: request
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    if (request /= MPI_REQUEST_NULL) write(*,*) 'not finished', rank
  end subroutine
end module
subroutine times(in, inout, n, type)
  implicit none
  integer :: n, type, in(n), inout(n)
  inout = in * inout + 0 * type
end subroutine

subroutine moving
  use results
  implicit none
  integer :: i, mine(8), all(16), counts(4), places(4), ones(4), zeros(4)
  mine = (/ (10 * rank + i, i = 1, 8) /)
  ! Rank i has i + 1 of them.
  counts = (/ (i + 1, i = 0, 3) /); places = (/ 0, 1, 3, 6 /)
  ones = 2; zeros = (/ (2 * i, i = 0, 3) /)
  all = -1
  call MPI_Allgatherv(mine, rank + 1, MPI_INTEGER, all, counts, places, MPI_INTEGER, world, ierr)
  call show('allgatherv', all(:10))
  all = -1
  call MPI_Gatherv(mine, rank + 1, MPI_INTEGER, all, counts, places, MPI_INTEGER, 2, world, ierr)
  call show('gatherv', all(:10))
  mine = -1
  call MPI_Scatter(all, 2, MPI_INTEGER, mine, 2, MPI_INTEGER, 2, world, ierr)
  call show('scatter', mine)
  mine = -1
  call MPI_Scatterv(all, counts, places, MPI_INTEGER, mine, rank + 1, MPI_INTEGER, 2, world, ierr)
  call show('scatterv', mine)
  mine = (/ (10 * rank + i, i = 1, 8) /)
  call MPI_Alltoall(mine, 2, MPI_INTEGER, all, 2, MPI_INTEGER, world, ierr)
  call show('alltoall', all(:8))
  all = -1
  call MPI_Alltoallv(mine, ones, zeros, MPI_INTEGER, all, ones, zeros, MPI_INTEGER, world, ierr)
  call show('alltoallv', all(:8))
end subroutine

subroutine moving_later
  use results
  implicit none
  integer :: i, mine(8), all(16), counts(4), places(4), ones(4), zeros(4), request
  mine = (/ (10 * rank + i, i = 1, 8) /)
  counts = (/ (i + 1, i = 0, 3) /); places = (/ 0, 1, 3, 6 /)
  ones = 2; zeros = (/ (2 * i, i = 0, 3) /)
  call MPI_Ibarrier(world, request, ierr)
  call finish(request)
  call MPI_Ibcast(mine, 4, MPI_INTEGER, 1, world, request, ierr)
  call finish(request)
  call show('ibcast', mine)
  all = -1
  call MPI_Iallgather(mine(5), 2, MPI_INTEGER, all, 2, MPI_INTEGER, world, request, ierr)
  call finish(request)
  call show('iallgather', all(:8))
  all = -1
  call MPI_Iallgatherv(mine(5), rank + 1, MPI_INTEGER, all, counts, places, MPI_INTEGER, world, request, ierr)
  call finish(request)
  call show('iallgatherv', all(:10))
  all = -1
  call MPI_Igather(mine(5), 2, MPI_INTEGER, all, 2, MPI_INTEGER, 3, world, request, ierr)
  call finish(request)
  call show('igather', all(:8))
  all = -1
  call MPI_Igatherv(mine(5), rank + 1, MPI_INTEGER, all, counts, places, MPI_INTEGER, 0, world, request, ierr)
  call finish(request)
  call show('igatherv', all(:10))
  mine = -1
  call MPI_Iscatter(all, 2, MPI_INTEGER, mine, 2, MPI_INTEGER, 0, world, request, ierr)
  call finish(request)
  call show('iscatter', mine)
  mine = -1
  call MPI_Iscatterv(all, counts, places, MPI_INTEGER, mine, rank + 1, MPI_INTEGER, 0, world, request, ierr)
  call finish(request)
  call show('iscatterv', mine)
  mine = (/ (10 * rank + i, i = 1, 8) /)
  call MPI_Ialltoall(mine, 2, MPI_INTEGER, all, 2, MPI_INTEGER, world, request, ierr)
  call finish(request)
  call show('ialltoall', all(:8))
  all = -1
  call MPI_Ialltoallv(mine, ones, zeros, MPI_INTEGER, all, ones, zeros, MPI_INTEGER, world, request, ierr)
  call finish(request)
  call show('ialltoallv', all(:8))
end subroutine

subroutine combining
  use results
  implicit none
  integer :: i, mine(8), all(8), counts(4), op
  logical :: commutes
  external :: times
  mine = (/ (rank + i, i = 1, 8) /); counts = (/ 1, 2, 3, 2 /); all = -1
  call MPI_Op_create(times, .false., op, ierr)
  call MPI_Op_commutative(op, commutes, ierr)
  if (commutes) write(*,*) 'commutes', rank
  call MPI_Op_commutative(MPI_SUM, commutes, ierr)
  if (.not. commutes) write(*,*) 'does not commute', rank
  call MPI_Scan(mine, all, 8, MPI_INTEGER, op, world, ierr)
  call show('scan', all)
  all = -1
  call MPI_Exscan(mine, all, 8, MPI_INTEGER, MPI_SUM, world, ierr)
  call show('exscan', all)
  all = -1
  call MPI_Reduce_scatter(mine, all, counts, MPI_INTEGER, op, world, ierr)
  call show('reduce_scatter', all)
  all = -1
  call MPI_Reduce_scatter_block(mine, all, 2, MPI_INTEGER, MPI_BXOR, world, ierr)
  call show('reduce_scatter_block', all)
  call MPI_Reduce_local(mine, all, 2, MPI_INTEGER, op, ierr)
  call show('reduce_local', all)
  call MPI_Op_free(op, ierr)
end subroutine

subroutine combining_later
  use results
  implicit none
  integer :: i, mine(8), all(8), counts(4), request
  mine = (/ (rank + i, i = 1, 8) /); counts = (/ 1, 2, 3, 2 /); all = -1
  call MPI_Iallreduce(mine, all, 8, MPI_INTEGER, MPI_PROD, world, request, ierr)
  call finish(request)
  call show('iallreduce', all)
  all = -1
  call MPI_Ireduce(mine, all, 8, MPI_INTEGER, MPI_MAX, 3, world, request, ierr)
  call finish(request)
  call show('ireduce', all)
  call MPI_Iscan(mine, all, 8, MPI_INTEGER, MPI_MIN, world, request, ierr)
  call finish(request)
  call show('iscan', all)
  all = -1
  call MPI_Iexscan(mine, all, 8, MPI_INTEGER, MPI_SUM, world, request, ierr)
  call finish(request)
  call show('iexscan', all)
  all = -1
  call MPI_Ireduce_scatter(mine, all, counts, MPI_INTEGER, MPI_SUM, world, request, ierr)
  call finish(request)
  call show('ireduce_scatter', all)
  all = -1
  call MPI_Ireduce_scatter_block(mine, all, 2, MPI_INTEGER, MPI_SUM, world, request, ierr)
  call finish(request)
  call show('ireduce_scatter_block', all)
end subroutine

! The neighbours of a rank are those on both sides, in a ring.
subroutine neighbours
  use results
  implicit none
  integer :: i, ring, mine(8), all(8), ones(2), places(2), request
  ones = (/ 1, 2 /); places = (/ 0, 2 /)
  mine = (/ (10 * rank + i, i = 1, 8) /); all = -1
  call MPI_Cart_create(world, 1, (/ size /), (/ .true. /), .false., ring, ierr)
  call MPI_Neighbor_allgather(mine, 2, MPI_INTEGER, all, 2, MPI_INTEGER, ring, ierr)
  call show('neighbor_allgather', all)
  all = -1
  call MPI_Neighbor_allgatherv(mine, 2, MPI_INTEGER, all, (/ 2, 2 /), (/ 1, 4 /), MPI_INTEGER, ring, ierr)
  call show('neighbor_allgatherv', all)
  all = -1
  call MPI_Neighbor_alltoall(mine, 2, MPI_INTEGER, all, 2, MPI_INTEGER, ring, ierr)
  call show('neighbor_alltoall', all)
  all = -1
  call MPI_Neighbor_alltoallv(mine, ones, places, MPI_INTEGER, all, (/ 2, 1 /), places, MPI_INTEGER, ring, ierr)
  call show('neighbor_alltoallv', all)
  all = -1
  call MPI_Ineighbor_allgather(mine, 2, MPI_INTEGER, all, 2, MPI_INTEGER, ring, request, ierr)
  call finish(request)
  call show('ineighbor_allgather', all)
  all = -1
  call MPI_Ineighbor_allgatherv(mine, 2, MPI_INTEGER, all, (/ 2, 2 /), (/ 1, 4 /), MPI_INTEGER, ring, request, ierr)
  call finish(request)
  call show('ineighbor_allgatherv', all)
  all = -1
  call MPI_Ineighbor_alltoall(mine, 2, MPI_INTEGER, all, 2, MPI_INTEGER, ring, request, ierr)
  call finish(request)
  call show('ineighbor_alltoall', all)
  all = -1
  call MPI_Ineighbor_alltoallv(mine, ones, places, MPI_INTEGER, all, (/ 2, 1 /), places, MPI_INTEGER, ring, request, ierr)
  call finish(request)
  call show('ineighbor_alltoallv', all)
  call MPI_Comm_free(ring, ierr)
end subroutine

program sharing
  use results
  implicit none
  call MPI_Init(ierr)
  call MPI_Comm_rank(world, rank, ierr)
  call MPI_Comm_size(world, size, ierr)
  if (size /= 4) call MPI_Abort(world, 2, ierr)
  call moving
  call moving_later
  call combining
  call combining_later
  call neighbours
  call MPI_Finalize(ierr)
end program
