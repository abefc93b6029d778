$POISE wire model
$POISE wire model --data 1G --redundancy 95 --bits 32 --message 2
$POISE wire model here
$POISE wire model --data 1G --json | head -9
