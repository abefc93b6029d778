$POISE noise -q fast
$POISE noise somewhere
$POISE noise --iterations 0
