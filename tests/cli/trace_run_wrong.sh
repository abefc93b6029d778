$POISE trace run
$POISE trace run --bad mpirun
$POISE trace run no-such-launcher -n 2 ./prog
$POISE trace run --mpi none /bin/true
$POISE trace run /bin/true
touch there
$POISE trace run --trace there --mpi ompi /bin/true
$POISE trace run --mpi ompi --query 'filter wait>' /bin/true
$POISE trace run --mpi ompi --query 'by peer' /bin/true
$POISE trace run --mpi ompi --when soon /bin/true
$POISE trace run --mpi ompi --share 101 /bin/true
