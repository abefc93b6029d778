$POISE noise --quantum fast
$POISE noise somewhere
$POISE noise --iterations 0
