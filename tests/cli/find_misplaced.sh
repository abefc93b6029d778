mkdir t
$POISE find t --threads=2
$POISE find t -L
