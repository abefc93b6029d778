# Programs that no preload can serve, and wrong use.
echo 'int main(void) { return 7; }' >t.c
gcc -static -o fixed t.c
printf '#!/bin/sh\nexit 3\n' >script
chmod +x script
for words in "" "--mpi ompi" "--mpi ompi ./none" "--mpi ompi none" \
    "--mpi ompi ./fixed" "./script" "--mpi other ./script"; do
    $POISE coll $words 2>&1 | sed 's| in /.*||'
done
# A preload with a sanitizer in it is not the first library of a shell.
ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 \
    $POISE coll --mpi ompi --tree flat ./script
echo "exit $?"
