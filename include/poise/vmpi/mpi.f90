! What `use mpi` means in a program that `poise fort` compiles.
module mpi
  implicit none
  public
  include 'mpif.h'
end module mpi
