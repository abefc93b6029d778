printf 12345 >in
$POISE sort --type u32 in -o out
$POISE sort --type u16 in -o out
$POISE sort --type record:5,3,3 in -o out
$POISE sort --type u64 --key 0,4 in -o out
$POISE sort --type u64 -r in -o out
$POISE sort in out
$POISE sort --type u8 in -o out
$POISE sort --type lines in in
$POISE sort missing -o out
$POISE sort --generate 3 a b
$POISE sort --memory 10K in -o out
$POISE sort --scratch nowhere in -o out
$POISE sort -k 0 in
$POISE sort -k 1.0 in
$POISE sort -k 1,x in
$POISE sort -k 1,2x in
$POISE sort -k name in
$POISE sort --type record:5 -r in
printf 'name,amount\nb,2\n' | $POISE sort --csv -k amount,nr
$POISE sort -k 2ng in
$POISE sort -nM in
$POISE sort -t ab in
$POISE sort -S 1Q in
$POISE sort -c in in
$POISE sort -c -C in
$POISE sort -c in -o out
$POISE sort --in-place in -o out
$POISE sort in -o out -o other
$POISE sort --verify in
$POISE sort --files0-from missing
$POISE sort --files0-from /dev/null
$POISE sort --files0-from /dev/null in
$POISE sort -R --random-source in in
printf 'a\0\0' | $POISE sort --files0-from -
POISE_FAULT=write:1:ENOSPC $POISE sort in -o out
POISE_FAULT=write:2:ENOSPC $POISE sort in -o out
code=$?
ls
exit $code
