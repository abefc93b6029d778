# Old names work, and say once what to write instead.
$POISE listrank --generate 100 in
$POISE listrank -m 2M -t 1 -t2 --sync in out && $POISE listrank --check in out | head -1
$POISE sort --generate 100 --type u64 in
rm -f out
$POISE sort --sync --type u64 in out && $POISE sort --check --type u64 out | head -1
mkdir t
$POISE walk -t1 -n --policy near t | head -1 | sed 's/ in .*/ in TIME/'
$POISE bfs --scale 4 --roots 1 -t 1 --no-fuse --alpha 3 --no-validate | head -1
$POISE wire model -b 32 --json | grep width
$POISE run -v 2 -t 1 ./no-such-program
# They stand in no help, and are no abbreviations.
$POISE help run | grep -e '-v,'
$POISE solve --repl 3 a b
