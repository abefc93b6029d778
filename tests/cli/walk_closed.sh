# Standard output that cannot be written to is an error that is told.
mkdir t
$POISE walk --names-only t >/dev/full
