mkdir t
$POISE walk --names-only --trace f t >/dev/null && ls -A
$POISE walk --names-only --trace f t >/dev/null
