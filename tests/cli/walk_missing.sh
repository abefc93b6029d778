mkdir t
$POISE walk -n t missing | sed 's/ in .*/ in TIME/'
exit "${PIPESTATUS[0]}"
