mkdir t
$POISE find t >/dev/full
