# Standard output that cannot be written to is an error that is told.
mkdir t
$POISE walk -n t >/dev/full
