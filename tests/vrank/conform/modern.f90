! What a program of today calls, from Fortran. Lines say which rank wrote them:
! the comparison sorts them.
module state
  implicit none
  integer :: counter = 5
end module
subroutine combine(in, inout, n, type)
  integer n, type, in(n), inout(n), i
  do i = 1, n
    inout(i) = max(in(i), inout(i)) + type * 0
  end do
end subroutine
program p
  use mpi
  use state
  implicit none
  integer :: rank, size, ierr, next, last, requests(2), value, got, i, total
  integer :: status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 2), place, op
  integer, save :: mine = 7
  real(8) :: x(3), y(3), t
  character(len=MPI_MAX_PROCESSOR_NAME) :: name
  character(len=20) :: comm_name
  integer :: length, grid, dims(2), coords(2), column
  logical :: periods(2), flag
  integer(kind=MPI_ADDRESS_KIND) :: lb, extent, top
  external combine
  integer, allocatable :: all(:)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  next = mod(rank + 1, size); last = mod(rank + size - 1, size)
  value = 100 + rank
  call MPI_Irecv(got, 1, MPI_INTEGER, last, 3, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Isend(value, 1, MPI_INTEGER, next, 3, MPI_COMM_WORLD, requests(2), ierr)
  call MPI_Waitall(2, requests, statuses, ierr)
  counter = counter + rank; mine = mine + rank
  write(*,'(a,7i5)') 'ring', rank, got, statuses(MPI_SOURCE,1), &
    statuses(MPI_TAG,1), counter, mine, merge(1, 0, requests(1) == MPI_REQUEST_NULL)
  call MPI_Recv_init(got, 1, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Start(requests(1), ierr)
  requests(2) = MPI_REQUEST_NULL
  call MPI_Send(value, 1, MPI_INTEGER, next, 4, MPI_COMM_WORLD, ierr)
  call MPI_Waitany(2, requests, place, status, ierr)
  call MPI_Get_count(status, MPI_INTEGER, i, ierr)
  write(*,'(a,5i5)') 'any', rank, place, got, status(MPI_TAG), i
  call MPI_Request_free(requests(1), ierr)
  x = (/ 1d0, 2d0, 3d0 /) * (rank + 1)
  call MPI_Allreduce(MPI_IN_PLACE, x, 3, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  call MPI_Op_create(combine, .true., op, ierr)
  call MPI_Allreduce(value, total, 1, MPI_INTEGER, op, MPI_COMM_WORLD, ierr)
  call MPI_Op_free(op, ierr)
  write(*,'(a,i5,3f8.1,i6)') 'sum', rank, x, total
  dims = 0; periods = (/ .true., .false. /)
  call MPI_Dims_create(size, 2, dims, ierr)
  call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, .false., grid, ierr)
  call MPI_Cart_get(grid, 2, dims, periods, coords, ierr)
  call MPI_Comm_set_name(grid, 'the grid', ierr)
  call MPI_Comm_get_name(grid, comm_name, length, ierr)
  write(*,'(a,5i4,2l2,1x,a,i4,a)') 'grid', rank, dims, coords, periods, comm_name, length, '|'
  call MPI_Comm_free(grid, ierr)
  call MPI_Type_vector(2, 1, 2, MPI_DOUBLE_PRECISION, column, ierr)
  call MPI_Type_commit(column, ierr)
  call MPI_Type_get_extent(column, lb, extent, ierr)
  call MPI_Type_free(column, ierr)
  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, top, flag, ierr)
  write(*,'(a,i3,2i5,l2,l2,l2)') 'type', rank, lb, extent, column == MPI_DATATYPE_NULL, flag, top >= 32767
  allocate(all(size))
  call MPI_Gather(value, 1, MPI_INTEGER, all, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
  if (rank == 0) write(*,'(a,8i5)') 'all', all
  call MPI_Sendrecv(value, 1, MPI_INTEGER, next, 0, got, 1, MPI_INTEGER, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierr)
  call MPI_Send(value, 1, MPI_INTEGER, size + 5, 0, MPI_COMM_WORLD, ierr)
  call MPI_Error_class(ierr, i, ierr)
  write(*,'(a,i3,l2)') 'error', rank, i == MPI_ERR_RANK
  call MPI_Get_processor_name(name, length, ierr)
  t = MPI_Wtime()
  if (t < 0 .or. length < 1 .or. name(1:1) == ' ') print *, 'wrong'
  call MPI_Finalize(ierr)
end program
