# Words of GNU du that a file or the environment completes, and what is wrong.
mkdir -p t/a
head -c 5000 /dev/zero >t/a/f
ln -s a t/l
touch -d '2001-02-03 04:05:06.7' t/a t/a/f t
printf 't/a\0\0t/none\0' >names
printf 'f\n' >patterns
$POISE du --inodes -d0 --files0-from=names
printf -- '-\0t/l\0' | $POISE du -D --inodes --files0-from=-
$POISE du -a --inodes -X patterns t/a
$POISE du -a --inodes --time t/a
$POISE du -a --inodes --time=mtime --time-style=full-iso t/a
TIME_STYLE=posix-iso $POISE du --inodes --time t/a
TIME_STYLE='+%Y' $POISE du --inodes --time t/a
DU_BLOCK_SIZE=1000 $POISE du --apparent-size -t 5000 -s t/a/f
BLOCKSIZE=nonsense $POISE du --apparent-size -s t/a/f
$POISE du -t -0 t
$POISE du -t 5Q t
$POISE du --time=a t/a >/dev/null && echo atime
$POISE du --time=x t
$POISE du --time --time-style=short t
$POISE du --files0-from=names t
$POISE du --files0-from=none
$POISE du -X none t
$POISE du --charge-links=first t
$POISE du --inodes -b -sd0 t
