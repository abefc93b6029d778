$POISE trace attach
$POISE trace attach no-such-file
