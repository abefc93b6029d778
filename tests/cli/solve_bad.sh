# What is wrong is named, and nothing is written.
printf '1 2\n3\n' >ragged
printf '1 x\n' >letters
printf '' >empty
printf 'P5 2 2 255\n123' >short.pgm
printf 'P5 2 2 0\n1234' >black.pgm
printf '1 2 3\n' >good
for in in ragged letters empty short.pgm black.pgm missing; do
    $POISE solve $in out
    echo $?
done
$POISE solve --omega 2 good out
$POISE solve --omega two good out
$POISE solve -n 2 --block-time 1us --slow 1,0 good out
$POISE solve --block-time 1us --slow 1,4 good out
$POISE solve -n 2 --slow 1,4 good out
$POISE solve good ./good; echo $?
$POISE solve --hold much good out
$POISE solve good
$POISE solve --method guess good out
printf '0 0-1 0-2\n0 0-1 1-3\n' >overlap
printf '0 0-1 0-2\n' >hole
printf '0 0 0-3\n' >words
for chunks in overlap hole words /dev/null; do
    $POISE solve --chunks $chunks --block 1 good out
    echo $?
done
POISE_FAULT=write:1:ENOSPC $POISE solve good out
code=$?
ls
exit $code
