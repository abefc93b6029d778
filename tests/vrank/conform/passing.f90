! Messages from Fortran: kinds of sending, of waiting and of probing. Lines say
! which rank wrote them: the comparison sorts them.
module results
  use mpi
  implicit none
  integer :: rank, size, next, last, world = MPI_COMM_WORLD, ierr
contains
  subroutine show(what, values)
    character(len=*), intent(in) :: what
    integer, intent(in) :: values(:)
    write(*,'(a,i3,a,16i6)') what, rank, ':', values
  end subroutine
  subroutine show_status(what, status)
    character(len=*), intent(in) :: what
    integer, intent(in) :: status(MPI_STATUS_SIZE)
    integer :: n, m
    call MPI_Get_count(status, MPI_INTEGER, n, ierr)
    call MPI_Get_elements(status, MPI_INTEGER, m, ierr)
    call show(what, (/ status(MPI_SOURCE), status(MPI_TAG), n, m /))
  end subroutine
end module

subroutine kinds_of_sending
  use results
  implicit none
  integer :: kind, got, status(MPI_STATUS_SIZE), request, value, used, space(100)
  do kind = 1, 6
    value = 100 * kind + rank
    ! What is ready must be received already.
    call MPI_Irecv(got, 1, MPI_INTEGER, last, kind, world, request, ierr)
    call MPI_Barrier(world, ierr)
    select case (kind)
    case (1)
      call MPI_Rsend(value, 1, MPI_INTEGER, next, kind, world, ierr)
      call MPI_Wait(request, status, ierr)
    case (2)
      used = 4 + MPI_BSEND_OVERHEAD
      call MPI_Buffer_attach(space, 400, ierr)
      call MPI_Bsend(value, 1, MPI_INTEGER, next, kind, world, ierr)
      call MPI_Wait(request, status, ierr)
      call MPI_Buffer_detach(space, used, ierr)
      if (used /= 400) write(*,*) 'of another size', rank, used
    case (3)
      call isent(3)
    case (4)
      call isent(4)
    case (5)
      call isent(5)
    case (6)
      call MPI_Send(value, 1, MPI_INTEGER, next, kind, world, ierr)
      call MPI_Wait(request, status, ierr)
      call MPI_Sendrecv_replace(got, 1, MPI_INTEGER, next, 7, last, 7, world, status, ierr)
    end select
    call show('sent', (/ kind, got /))
    call show_status('sent as', status)
  end do
contains
  subroutine isent(how)
    integer, intent(in) :: how
    integer :: sending, both(2), states(MPI_STATUS_SIZE,2)
    logical :: flag
    sending = MPI_REQUEST_NULL
    if (how == 3) call MPI_Issend(value, 1, MPI_INTEGER, next, kind, world, sending, ierr)
    if (how == 4) call MPI_Irsend(value, 1, MPI_INTEGER, next, kind, world, sending, ierr)
    if (how == 5) then
      call MPI_Buffer_attach(space, 400, ierr)
      call MPI_Ibsend(value, 1, MPI_INTEGER, next, kind, world, sending, ierr)
    end if
    both = (/ sending, request /)
    flag = .false.
    do while (.not. flag)
      call MPI_Testall(2, both, flag, states, ierr)
    end do
    if (any(both /= MPI_REQUEST_NULL)) write(*,*) 'not finished', rank
    status = states(:,2)
    if (how == 5) call MPI_Buffer_detach(space, used, ierr)
  end subroutine
end subroutine

subroutine again_and_again
  use results
  implicit none
  integer :: requests(5), values(4), got(4), i, round, done, which(5), count
  integer :: states(MPI_STATUS_SIZE,5), state(MPI_STATUS_SIZE), space(100)
  logical :: flag
  call MPI_Buffer_attach(space, 400, ierr)
  call MPI_Send_init(values(1), 1, MPI_INTEGER, next, 1, world, requests(1), ierr)
  call MPI_Ssend_init(values(2), 1, MPI_INTEGER, next, 2, world, requests(2), ierr)
  call MPI_Bsend_init(values(3), 1, MPI_INTEGER, next, 3, world, requests(3), ierr)
  call MPI_Rsend_init(values(4), 1, MPI_INTEGER, next, 4, world, requests(4), ierr)
  do round = 1, 2
    values = (/ (1000 * round + 10 * rank + i, i = 1, 4) /); got = -1
    do i = 1, 4
      call MPI_Recv_init(got(i), 1, MPI_INTEGER, last, i, world, requests(5), ierr)
      call MPI_Start(requests(5), ierr)
      if (i == 4) call MPI_Barrier(world, ierr)
      if (i == 1) then
        call MPI_Startall(1, requests, ierr)
      else
        call MPI_Start(requests(i), ierr)
      end if
      count = 0
      do while (count < 2)
        ! Of those five two are active.
        if (round == 1) then
          call MPI_Testsome(5, requests, done, which, states, ierr)
          if (done > 0) count = count + done
        else
          call MPI_Testany(5, requests, done, flag, state, ierr)
          if (flag) count = count + 1
          if (flag .and. done /= 5 .and. done /= i) write(*,*) 'another', rank, done
        end if
      end do
      call MPI_Request_free(requests(5), ierr)
    end do
    call show('again', got)
  end do
  do i = 1, 4
    call MPI_Request_free(requests(i), ierr)
  end do
  call MPI_Buffer_detach(space, i, ierr)
end subroutine

subroutine probing
  use results
  implicit none
  integer :: values(3), got(3), status(MPI_STATUS_SIZE), message, request, sent
  logical :: flag
  values = (/ rank, rank + 1, rank + 2 /)
  call MPI_Isend(values, 3, MPI_INTEGER, next, 1, world, sent, ierr)
  flag = .false.
  do while (.not. flag)
    call MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world, flag, status, ierr)
  end do
  call show_status('iprobe', status)
  call MPI_Mprobe(last, 1, world, message, status, ierr)
  call show_status('mprobe', status)
  call MPI_Mrecv(got, 3, MPI_INTEGER, message, status, ierr)
  if (message /= MPI_MESSAGE_NULL) write(*,*) 'message left', rank
  call show('mrecv', got)
  call MPI_Wait(sent, MPI_STATUS_IGNORE, ierr)
  call MPI_Isend(values, 2, MPI_INTEGER, next, 2, world, sent, ierr)
  flag = .false.
  do while (.not. flag)
    call MPI_Improbe(MPI_ANY_SOURCE, 2, world, flag, message, status, ierr)
  end do
  call MPI_Imrecv(got, 3, MPI_INTEGER, message, request, ierr)
  call MPI_Request_get_status(request, flag, status, ierr)
  call MPI_Wait(request, status, ierr)
  call show('imrecv', got)
  call show_status('imrecv as', status)
  flag = .false.
  do while (.not. flag)
    call MPI_Test(sent, flag, MPI_STATUS_IGNORE, ierr)
  end do
end subroutine

subroutine cancelling
  use results
  implicit none
  integer :: got, request, status(MPI_STATUS_SIZE)
  logical :: flag
  call MPI_Irecv(got, 1, MPI_INTEGER, last, 99, world, request, ierr)
  call MPI_Cancel(request, ierr)
  call MPI_Wait(request, status, ierr)
  call MPI_Test_cancelled(status, flag, ierr)
  write(*,'(a,i3,l2)') 'cancelled', rank, flag
  call MPI_Status_set_cancelled(status, .false., ierr)
  call MPI_Test_cancelled(status, flag, ierr)
  write(*,'(a,i3,l2)') 'not cancelled', rank, flag
  call MPI_Status_set_elements(status, MPI_INTEGER, 5, ierr)
  call MPI_Get_elements(status, MPI_INTEGER, got, ierr)
  call show('elements', (/ got /))
end subroutine

program passing
  use results
  implicit none
  integer :: level, version, minor, got
  logical :: flag
  call MPI_Initialized(flag, ierr)
  if (flag) write(*,*) 'initialized'
  call MPI_Init_thread(MPI_THREAD_SINGLE, level, ierr)
  call MPI_Query_thread(version, ierr)
  if (version /= level) write(*,*) 'levels', level, version
  call MPI_Is_thread_main(flag, ierr)
  if (.not. flag) write(*,*) 'not main'
  call MPI_Get_version(version, minor, ierr)
  if (version < 3) write(*,*) 'old', version, minor
  if (MPI_Wtick() <= 0 .or. MPI_Wtick() > 1) write(*,*) 'tick'
  call MPI_Comm_rank(world, rank, ierr)
  call MPI_Comm_size(world, size, ierr)
  next = mod(rank + 1, size); last = mod(rank + size - 1, size)
  call MPI_Pcontrol(1)
  call kinds_of_sending
  call again_and_again
  call probing
  call cancelling
  if (rank == 0) call MPI_Send(rank, 1, MPI_INTEGER, 1, 0, world, ierr)
  if (rank == 1) call MPI_Recv(got, 1, MPI_INTEGER, 0, 0, world, MPI_STATUS_IGNORE, ierr)
  call MPI_Finalize(ierr)
  call MPI_Finalized(flag, ierr)
  if (.not. flag) write(*,*) 'not finalized'
end program
