mkdir t
$POISE find t --threads=2
$POISE find -L t
$POISE find t -follow
$POISE du --time t
