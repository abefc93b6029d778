$POISE bfs --scale 8 --roots 2 -j 1 --no-validate --json --levels --method bottom-up | grep -oE '"(searches|bottom_up[a-z_]*)":' | sort | uniq -c | tr -s ' '
$POISE bfs --scale 8 --roots 2 -j 1 --no-validate --json --levels --method top-down | grep -c bottom_up_
