mkdir t
$POISE walk -n --trace f t >/dev/null && ls -A
$POISE walk -n --trace f t >/dev/null
