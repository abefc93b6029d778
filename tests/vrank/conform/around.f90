! Communicators, groups, topologies, types, errors and what hangs on them, from
! Fortran. Lines say which rank wrote them: the comparison sorts them.
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
  subroutine show_group(what, group)
    character(len=*), intent(in) :: what
    integer, intent(inout) :: group
    integer :: n, me, all, ones(4), others(4)
    call MPI_Group_size(group, n, ierr)
    call MPI_Group_rank(group, me, ierr)
    if (me == MPI_UNDEFINED) me = -1
    call MPI_Comm_group(world, all, ierr)
    ones = (/ 0, 1, 2, 3 /); others = -1
    call MPI_Group_translate_ranks(group, n, ones, all, others, ierr)
    call show(what, (/ n, me, others /))
    call MPI_Group_free(all, ierr)
    call MPI_Group_free(group, ierr)
    if (group /= MPI_GROUP_NULL) write(*,*) 'group left', rank
  end subroutine
  ! Of comparing: their numbers differ between MPIs.
  integer function compared(result)
    integer, intent(in) :: result
    compared = 9
    if (result == MPI_IDENT) compared = 0
    if (result == MPI_CONGRUENT) compared = 1
    if (result == MPI_SIMILAR) compared = 2
    if (result == MPI_UNEQUAL) compared = 3
  end function
end module

subroutine groups
  use results
  implicit none
  integer :: all, low, high, group, result
  call MPI_Comm_group(world, all, ierr)
  call MPI_Group_incl(all, 3, (/ 2, 0, 1 /), low, ierr)
  call MPI_Group_excl(all, 2, (/ 0, 3 /), high, ierr)
  call MPI_Group_compare(low, high, result, ierr)
  call show('compare', (/ compared(result) /))
  call MPI_Group_compare(all, all, result, ierr)
  call show('compare same', (/ compared(result) /))
  call MPI_Group_union(high, low, group, ierr)
  call show_group('union', group)
  call MPI_Group_intersection(low, high, group, ierr)
  call show_group('intersection', group)
  call MPI_Group_difference(all, low, group, ierr)
  call show_group('difference', group)
  call MPI_Group_range_incl(all, 2, reshape((/ 3, 1, -2, 0, 0, 1 /), (/ 3, 2 /)), group, ierr)
  call show_group('range_incl', group)
  call MPI_Group_range_excl(all, 1, reshape((/ 0, 3, 2 /), (/ 3, 1 /)), group, ierr)
  call show_group('range_excl', group)
  call show_group('low', low)
  call show_group('high', high)
  call MPI_Group_free(all, ierr)
end subroutine

subroutine communicators
  use results
  implicit none
  integer :: same, group, other, result, n, info, both, bridge, low
  logical :: flag
  call MPI_Comm_dup(world, same, ierr)
  call MPI_Comm_compare(world, same, result, ierr)
  call MPI_Comm_test_inter(same, flag, ierr)
  call show('dup', (/ compared(result), merge(1, 0, flag) /))
  call MPI_Comm_dup(same, other, ierr)
  call MPI_Comm_free(other, ierr)
  if (other /= MPI_COMM_NULL) write(*,*) 'left', rank
  call MPI_Info_create(info, ierr)
  call MPI_Info_set(info, 'colour', 'blue', ierr)
  call MPI_Info_set(info, 'taste', 'sour', ierr)
  call MPI_Info_delete(info, 'taste', ierr)
  call MPI_Comm_dup_with_info(same, info, other, ierr)
  call MPI_Comm_set_info(other, info, ierr)
  call MPI_Info_free(info, ierr)
  call MPI_Comm_get_info(other, info, ierr)
  call MPI_Info_dup(info, both, ierr)
  call MPI_Info_free(info, ierr)
  call MPI_Info_free(both, ierr)
  if (both /= MPI_INFO_NULL) write(*,*) 'info left', rank
  call MPI_Comm_disconnect(other, ierr)
  call MPI_Comm_split_type(same, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, other, ierr)
  call MPI_Comm_size(other, n, ierr)
  call show('split_type', (/ n /))
  call MPI_Comm_free(other, ierr)
  call MPI_Comm_group(world, group, ierr)
  call MPI_Group_incl(group, 2, (/ 3, 1 /), low, ierr)
  call MPI_Comm_create(world, low, other, ierr)
  n = -1
  if (other /= MPI_COMM_NULL) then
    call MPI_Comm_rank(other, n, ierr)
    call MPI_Comm_free(other, ierr)
  end if
  call show('create', (/ n /))
  n = -1
  if (mod(rank, 2) == 1) then
    call MPI_Comm_create_group(world, low, 5, other, ierr)
    call MPI_Comm_rank(other, n, ierr)
    call MPI_Comm_free(other, ierr)
  end if
  call show('create_group', (/ n /))
  call MPI_Group_free(low, ierr)
  call MPI_Group_free(group, ierr)
  call MPI_Comm_split(world, rank / 2, rank, low, ierr)
  call MPI_Intercomm_create(low, 0, same, 2 - rank / 2 * 2, 7, bridge, ierr)
  call MPI_Comm_test_inter(bridge, flag, ierr)
  call MPI_Comm_remote_size(bridge, n, ierr)
  call show('intercomm', (/ merge(1, 0, flag), n /))
  call MPI_Comm_remote_group(bridge, group, ierr)
  call show_group('remote', group)
  call MPI_Intercomm_merge(bridge, rank < 2, both, ierr)
  call MPI_Comm_rank(both, n, ierr)
  call show('merge', (/ n /))
  call MPI_Comm_free(both, ierr)
  call MPI_Comm_free(bridge, ierr)
  call MPI_Comm_free(low, ierr)
  call MPI_Comm_free(same, ierr)
  call MPI_Comm_get_parent(other, ierr)
  call show('parent', (/ merge(1, 0, other == MPI_COMM_NULL) /))
end subroutine

subroutine grids
  use results
  implicit none
  integer :: grid, row, n, coords(2), from, to, place, kind
  call MPI_Cart_create(world, 2, (/ 2, 2 /), (/ .true., .false. /), .false., grid, ierr)
  call MPI_Cartdim_get(grid, n, ierr)
  call MPI_Cart_coords(grid, rank, 2, coords, ierr)
  call MPI_Cart_rank(grid, (/ 1 - coords(1), coords(2) /), place, ierr)
  call show('cart', (/ n, coords, place /))
  call MPI_Cart_shift(grid, 0, 1, from, to, ierr)
  call show('shift', (/ from, to /))
  call MPI_Cart_shift(grid, 1, 1, from, to, ierr)
  if (from == MPI_PROC_NULL) from = -1
  if (to == MPI_PROC_NULL) to = -1
  call show('shift to the end', (/ from, to /))
  call MPI_Cart_map(world, 2, (/ 2, 2 /), (/ .true., .false. /), place, ierr)
  if (place == MPI_UNDEFINED) place = -1
  call show('map', (/ place /))
  call MPI_Cart_sub(grid, (/ .false., .true. /), row, ierr)
  call MPI_Comm_rank(row, n, ierr)
  call MPI_Topo_test(row, kind, ierr)
  call show('sub', (/ n, merge(1, 0, kind == MPI_CART) /))
  call MPI_Comm_free(row, ierr)
  call MPI_Comm_free(grid, ierr)
  call MPI_Topo_test(world, kind, ierr)
  if (kind /= MPI_UNDEFINED) write(*,*) 'a topology', rank
end subroutine

subroutine graphs
  use results
  implicit none
  integer :: graph, n, edges, ends(4), all(6), some(4), degrees(4), place, froms(4), tos(4), w(4), v(4)
  logical :: weighted
  ends = (/ 2, 3, 4, 6 /); all = (/ 1, 3, 0, 3, 0, 2 /)
  call MPI_Graph_create(world, 4, ends, all, .false., graph, ierr)
  call MPI_Graphdims_get(graph, n, edges, ierr)
  call show('graphdims', (/ n, edges /))
  ends = -1; all = -1; some = -1
  call MPI_Graph_get(graph, 4, 6, ends, all, ierr)
  call show('graph', (/ ends, all /))
  call MPI_Graph_neighbors_count(graph, rank, n, ierr)
  call MPI_Graph_neighbors(graph, rank, n, some, ierr)
  call show('neighbours', (/ n, some /))
  call MPI_Graph_map(world, 4, ends, all, place, ierr)
  call show('graph_map', (/ place /))
  call MPI_Comm_free(graph, ierr)
  froms = mod(rank + 3, 4); tos = mod(rank + 1, 4); w = 5 + rank; v = 0
  call MPI_Dist_graph_create_adjacent(world, 1, froms, w, 1, tos, w, MPI_INFO_NULL, .false., graph, ierr)
  call MPI_Dist_graph_neighbors_count(graph, n, edges, weighted, ierr)
  call show('adjacent', (/ n, edges, merge(1, 0, weighted) /))
  some = -1; degrees = -1; w = -1
  call MPI_Dist_graph_neighbors(graph, 4, some, w, 4, degrees, v, ierr)
  call show('adjacent', (/ some(1), w(1), degrees(1), v(1) /))
  call MPI_Comm_free(graph, ierr)
  ! Rank 0 tells the edges of all.
  froms = (/ 0, 1, 2, 3 /); degrees = 1; tos = (/ 3, 0, 1, 2 /)
  call MPI_Dist_graph_create(world, merge(4, 0, rank == 0), froms, degrees, tos, MPI_UNWEIGHTED, &
    MPI_INFO_NULL, .false., graph, ierr)
  call MPI_Dist_graph_neighbors_count(graph, n, edges, weighted, ierr)
  call MPI_Dist_graph_neighbors(graph, 1, some, MPI_UNWEIGHTED, 1, tos, MPI_UNWEIGHTED, ierr)
  call show('told by one', (/ n, edges, merge(1, 0, weighted), some(1), tos(1) /))
  call MPI_Comm_free(graph, ierr)
end subroutine

! Each picks integers out of sixteen, and sends them to itself.
subroutine picked(what, type)
  use results
  implicit none
  character(len=*), intent(in) :: what
  integer, intent(inout) :: type
  integer :: i, all(16), got(16), n, status(MPI_STATUS_SIZE), counts(4), combiner, last
  integer(kind=MPI_ADDRESS_KIND) :: lb, extent, first, true
  call MPI_Type_commit(type, ierr)
  all = (/ (i, i = 1, 16) /); got = 0
  call MPI_Sendrecv(all, 1, type, rank, 1, got, 16, MPI_INTEGER, rank, 1, world, status, ierr)
  call MPI_Get_count(status, MPI_INTEGER, n, ierr)
  call show(what, got(:n))
  call MPI_Type_get_extent(type, lb, extent, ierr)
  call MPI_Type_get_true_extent(type, first, true, ierr)
  call MPI_Type_get_envelope(type, counts(1), counts(2), counts(3), combiner, ierr)
  call MPI_Type_size(type, last, ierr)
  call show(what, (/ int(lb), int(extent), int(first), int(true), counts(:3), last /))
  call MPI_Type_free(type, ierr)
end subroutine

subroutine types
  use results
  implicit none
  integer :: type, inner, i, n, pair(2)
  integer(kind=MPI_ADDRESS_KIND) :: places(2), one, lb, extent
  character(len=MPI_MAX_OBJECT_NAME) :: name
  places = (/ 4, 32 /); one = 24
  call MPI_Type_indexed(2, (/ 1, 3 /), (/ 0, 2 /), MPI_INTEGER, type, ierr)
  call picked('indexed', type)
  call MPI_Type_create_hindexed(2, (/ 2, 1 /), places, MPI_INTEGER, type, ierr)
  call picked('hindexed', type)
  call MPI_Type_create_hindexed_block(2, 2, places, MPI_INTEGER, type, ierr)
  call picked('hindexed_block', type)
  call MPI_Type_create_indexed_block(2, 2, (/ 1, 5 /), MPI_INTEGER, type, ierr)
  call picked('indexed_block', type)
  call MPI_Type_create_hvector(2, 1, one, MPI_INTEGER, type, ierr)
  call picked('hvector', type)
  call MPI_Type_contiguous(2, MPI_INTEGER, inner, ierr)
  call MPI_Type_create_struct(2, (/ 1, 2 /), places, (/ MPI_INTEGER, inner /), type, ierr)
  call picked('struct', type)
  lb = -4; extent = 28
  call MPI_Type_create_resized(inner, lb, extent, type, ierr)
  call MPI_Type_dup(type, i, ierr)
  call MPI_Type_free(type, ierr)
  call picked('resized', i)
  call MPI_Type_create_subarray(2, (/ 4, 4 /), (/ 2, 3 /), (/ 1, 0 /), MPI_ORDER_FORTRAN, MPI_INTEGER, type, ierr)
  call picked('subarray', type)
  call MPI_Type_create_darray(4, rank, 2, (/ 4, 4 /), (/ MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC /), &
    (/ MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG /), (/ 2, 2 /), MPI_ORDER_FORTRAN, MPI_INTEGER, type, ierr)
  call picked('darray', type)
  call MPI_Type_set_name(inner, 'two of them', ierr)
  call MPI_Type_get_name(inner, name, n, ierr)
  write(*,'(a,i3,i4,1x,a)') 'name', rank, n, trim(name)
  call MPI_Type_free(inner, ierr)
  call MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, type, ierr)
  call MPI_Pack_size(3, type, world, n, ierr)
  call show('match_size', (/ n /))
  call MPI_Get_address(pair(1), one, ierr)
  call MPI_Get_address(pair(2), lb, ierr)
  call show('addresses', (/ int(lb - one) /))
end subroutine

! Their values, and what the program's procedures are called with.
subroutine copied(handle, keyval, extra, in, out, flag, err)
  use mpi
  implicit none
  integer :: handle, keyval, err
  integer(kind=MPI_ADDRESS_KIND) :: extra, in, out
  logical :: flag
  out = in + extra
  flag = in > 0 .and. handle /= MPI_COMM_NULL .and. keyval /= MPI_KEYVAL_INVALID
  err = MPI_SUCCESS
end subroutine
subroutine deleted(handle, keyval, value, extra, err)
  use results
  implicit none
  integer :: handle, keyval, err
  integer(kind=MPI_ADDRESS_KIND) :: value, extra
  call show('deleted', (/ int(value), int(extra), merge(1, 0, handle == keyval) * 0 /))
  err = MPI_SUCCESS
end subroutine
subroutine old_copied(handle, keyval, extra, in, out, flag, err)
  implicit none
  integer :: handle, keyval, extra, in, out, err
  logical :: flag
  out = in - extra + 0 * (handle - keyval)
  flag = .true.
  err = 0
end subroutine
subroutine old_deleted(handle, keyval, value, extra, err)
  use results
  implicit none
  integer :: handle, keyval, value, extra, err
  call show('old deleted', (/ value, extra, merge(1, 0, handle == keyval) * 0 /))
  err = 0
end subroutine

subroutine attributes_of(keyval)
  use results
  implicit none
  integer, intent(inout) :: keyval
  integer :: one, two
  logical :: flag(4)
  integer(kind=MPI_ADDRESS_KIND) :: value(4), wide
  value = -1; wide = 3000000000_MPI_ADDRESS_KIND + rank
  call MPI_Comm_dup(world, one, ierr)
  call MPI_Comm_get_attr(one, keyval, value(1), flag(1), ierr)
  call MPI_Comm_set_attr(one, keyval, wide, ierr)
  call MPI_Comm_get_attr(one, keyval, value(2), flag(2), ierr)
  call MPI_Comm_dup(one, two, ierr)
  call MPI_Comm_get_attr(two, keyval, value(3), flag(3), ierr)
  wide = 7 - 8 * mod(rank, 2)
  call MPI_Comm_set_attr(one, keyval, wide, ierr)
  call MPI_Comm_free(two, ierr)
  call MPI_Comm_dup(one, two, ierr)
  call MPI_Comm_delete_attr(one, keyval, ierr)
  call MPI_Comm_get_attr(two, keyval, value(4), flag(4), ierr)
  where (.not. flag) value = -1
  write(*,'(a,i3,4l2,4i12)') 'attribute', rank, flag, value
  call MPI_Comm_free(two, ierr)
  call MPI_Comm_free(one, ierr)
  call MPI_Comm_free_keyval(keyval, ierr)
  if (keyval /= MPI_KEYVAL_INVALID) write(*,*) 'key left', rank
end subroutine

subroutine attributes
  use results
  implicit none
  integer :: n, m, keyval, one, two
  logical :: flag, there
  integer(kind=MPI_ADDRESS_KIND) :: value, extra
  external :: copied, deleted, old_copied, old_deleted
  call MPI_Comm_get_attr(world, MPI_TAG_UB, value, flag, ierr)
  write(*,'(a,i3,2l2)') 'tag_ub', rank, flag, value >= 32767
  extra = 100
  call MPI_Comm_create_keyval(copied, deleted, keyval, extra, ierr)
  call attributes_of(keyval)
  call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, keyval, extra, ierr)
  call attributes_of(keyval)
  call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, keyval, extra, ierr)
  call attributes_of(keyval)
  call MPI_Type_create_keyval(copied, deleted, keyval, extra, ierr)
  call MPI_Type_dup(MPI_INTEGER, one, ierr)
  value = 40 + rank
  call MPI_Type_set_attr(one, keyval, value, ierr)
  call MPI_Type_dup(one, two, ierr)
  call MPI_Type_delete_attr(one, keyval, ierr)
  call MPI_Type_get_attr(one, keyval, value, flag, ierr)
  call MPI_Type_get_attr(two, keyval, value, there, ierr)
  write(*,'(a,i3,2l2,i6)') 'of a type', rank, flag, there, value
  call MPI_Type_free(one, ierr)
  call MPI_Type_free(two, ierr)
  call MPI_Type_free_keyval(keyval, ierr)
  call MPI_Attr_get(world, MPI_TAG_UB, n, flag, ierr)
  write(*,'(a,i3,2l2)') 'old', rank, flag, n >= 32767
  call MPI_Keyval_create(old_copied, old_deleted, keyval, 5, ierr)
  call MPI_Comm_dup(world, one, ierr)
  call MPI_Attr_put(one, keyval, -20, ierr)
  call MPI_Comm_dup(one, two, ierr)
  call MPI_Attr_get(one, keyval, n, flag, ierr)
  call MPI_Attr_get(two, keyval, m, there, ierr)
  write(*,'(a,i3,2l2,2i6)') 'old of a program', rank, flag, there, n, m
  call MPI_Attr_delete(two, keyval, ierr)
  call MPI_Comm_free(two, ierr)
  call MPI_Comm_free(one, ierr)
  call MPI_Keyval_free(keyval, ierr)
end subroutine

subroutine infos
  use results
  implicit none
  integer :: info, n, length
  logical :: flag, there
  character(len=12) :: value
  character(len=MPI_MAX_INFO_KEY) :: key
  call MPI_Info_create(info, ierr)
  call MPI_Info_set(info, ' colour', 'blue ', ierr)
  call MPI_Info_get_nkeys(info, n, ierr)
  call MPI_Info_get_nthkey(info, 0, key, ierr)
  call MPI_Info_get_valuelen(info, 'colour', length, flag, ierr)
  value = 'unset'
  call MPI_Info_get(info, 'colour', 12, value, flag, ierr)
  key = key(:20)
  write(*,'(a,i3,2i4,1x,3a,l2)') 'info', rank, n, length, key(:8), value, '|', flag
  call MPI_Info_get(info, 'sound', 12, value, there, ierr)
  write(*,'(a,i3,l2)') 'no info', rank, there
  call MPI_Info_free(info, ierr)
end subroutine

! The names of MPI-1, which are addresses in integers and the like.
subroutine old_names
  use results
  implicit none
  integer :: type, extent, low, high, own, handler
  call MPI_Type_vector(2, 1, 3, MPI_INTEGER, type, ierr)
  call MPI_Type_extent(type, extent, ierr)
  call MPI_Type_lb(type, low, ierr)
  call MPI_Type_ub(type, high, ierr)
  call show('old type', (/ extent, low, high /))
  call MPI_Type_free(type, ierr)
  call MPI_Comm_dup(world, own, ierr)
  call MPI_Errhandler_set(own, MPI_ERRORS_RETURN, ierr)
  call MPI_Errhandler_get(own, handler, ierr)
  call show('old handler', (/ merge(1, 0, handler == MPI_ERRORS_RETURN) /))
  call MPI_Comm_free(own, ierr)
end subroutine

subroutine errors
  use results
  implicit none
  integer :: own, other, handler, length, n, class
  character(len=MPI_MAX_ERROR_STRING) :: words
  call MPI_Comm_dup(world, own, ierr)
  call MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN, ierr)
  call MPI_Comm_get_errhandler(own, handler, ierr)
  call MPI_Comm_dup(own, other, ierr)
  call MPI_Comm_set_errhandler(other, handler, ierr)
  call MPI_Errhandler_free(handler, ierr)
  call MPI_Add_error_class(class, ierr)
  call MPI_Add_error_code(class, n, ierr)
  call MPI_Add_error_string(n, 'too green', ierr)
  call MPI_Error_class(n, length, ierr)
  if (length /= class) write(*,*) 'class', rank, length, class
  call MPI_Error_string(n, words, length, ierr)
  write(*,'(a,i3,i4,1x,a)') 'string', rank, length, words(:length)
  call MPI_Comm_call_errhandler(other, MPI_ERR_TAG, ierr)
  call MPI_Recv(n, 1, MPI_INTEGER, size, 0, other, MPI_STATUS_IGNORE, ierr)
  call MPI_Error_class(ierr, n, ierr)
  write(*,'(a,i3,l2)') 'error', rank, n == MPI_ERR_RANK
  call MPI_Comm_free(other, ierr)
  call MPI_Comm_free(own, ierr)
end subroutine

program around
  use results
  implicit none
  call MPI_Init(ierr)
  call MPI_Comm_rank(world, rank, ierr)
  call MPI_Comm_size(world, size, ierr)
  if (size /= 4) call MPI_Abort(world, 2, ierr)
  call groups
  call communicators
  call grids
  call graphs
  call types
  call attributes
  call infos
  call old_names
  call errors
  call MPI_Finalize(ierr)
end program
