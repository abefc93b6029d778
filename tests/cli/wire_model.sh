$POISE wire model
$POISE wire model -d 1G -r 95 -b 32 --message 2
$POISE wire model here
$POISE wire model -d 1G --json | head -9
