$POISE tune
$POISE tune here
$POISE tune --method luck
$POISE tune --iterations 1
$POISE tune --size 0
$POISE tune --size 1T
$POISE tune --size many
$POISE tune --json -o - --size 8
