# The benchmark's block: every search is valid, and its names are all there.
$POISE bfs --scale 10 --threads 2 --levels --report page.html |
    sed -E 's/^([a-z_]+_(time|TEPS|validate)|graph_generation|construction_time): .*/\1: .../' |
    sed -E '/^level/,$d'
grep -c '<svg' page.html
# No more roots than there are vertices to search from.
$POISE bfs --scale 1 | grep NBFS
$POISE bfs --scale 9 --json --roots 3 | grep -E '"(SCALE|NBFS|invalid|valid|reached)"'
$POISE bfs --scale 9 --json --roots 3 --no-validate --ablation labels=no --method bottom-up --order keep --ablation fuse=no --ablation simd=no --ablation first=no | grep -E '"(SCALE|NBFS|invalid|valid|reached|order)"'
