# Numbers, records and lines; the same checksum before and after.
$POISE sort --generate 20000 --type u64 --pattern skew in
$POISE sort --check --type u64 in
$POISE sort --type u64 --memory 300K --verify in -o out
$POISE sort --generate 2K --type record:100,0,10 records
$POISE sort --type record:100,0,10 records -o sorted && $POISE sort --check --type record:100,0,10 --json sorted
export LC_ALL=C
printf 'b\nB\n\na b\na\n' >lines
$POISE sort lines -o lines.sorted && cat lines.sorted
$POISE sort --unique --in-place lines.sorted
# Lines as GNU sort has them.
printf 'pear 10\nfig 9\nApple 100' >fruit
$POISE sort -k2,2n fruit
$POISE sort -f -r fruit lines
$POISE sort -t' ' -k2,2nr -s - <fruit
$POISE sort +1n -2 -o - fruit --p=1
$POISE sort -m lines.sorted lines.sorted | $POISE sort -u -o lines.sorted - && cat lines.sorted
printf 'fruit\0lines\0' | $POISE sort -c --files0-from=-
$POISE sort -c fruit; echo $?
$POISE sort -C fruit; echo $?
$POISE sort -c -k2,2V fruit; echo $?
$POISE sort -cf -u lines.sorted; echo $?
# Numbers, the greatest first.
$POISE sort --type u64 -r --memory 300K --verify in -o down && cmp -s in down; echo $?
$POISE sort -c --type u64 down >/dev/null; echo $?
rm down
# What it was to write IN OUT.
$POISE sort --type lines lines former && cat former
ls
