mkdir t
$POISE walk --names-only t missing | sed 's/ in .*/ in TIME/'
exit "${PIPESTATUS[0]}"
