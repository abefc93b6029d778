printf 12345 >in
$POISE sort --type u32 in out
$POISE sort --type u16 in out
$POISE sort --type record:5,3,3 in out
$POISE sort --type u64 --key 0,4 in out
$POISE sort in
$POISE sort in in
$POISE sort missing out
$POISE sort --generate 3 a b
$POISE sort --memory 10K in out
$POISE sort --scratch nowhere in out
POISE_FAULT=write:1:ENOSPC $POISE sort in out
POISE_FAULT=write:2:ENOSPC $POISE sort in out
code=$?
ls
exit $code
