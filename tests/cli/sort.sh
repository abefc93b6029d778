# Numbers, records and lines; the same checksum before and after.
$POISE sort --generate 20000 --type u64 --pattern skew in
$POISE sort --check --type u64 in
$POISE sort --type u64 --memory 300K --check in out
$POISE sort --generate 2K --type record:100,0,10 records
$POISE sort --type record:100,0,10 records sorted && $POISE sort --check --type record:100,0,10 --json sorted
printf 'b\nB\n\na b\na\n' >lines
$POISE sort lines lines.sorted && cat lines.sorted
$POISE sort --unique --in-place lines.sorted lines.sorted
ls
