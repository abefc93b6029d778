$POISE bfs --ablation help
for what in fuse=maybe granularity=3 exchange=privat alpha nothing=1; do
    $POISE bfs --scale 4 --ablation $what
done
$POISE bfs --scale 6 --roots 2 --ablation fuse=no --ablation alpha=2 --ablation summary=no | grep -E '^(SCALE|NBFS|num_)'
$POISE solve --ablation help
$POISE solve --ablation policy=mises a b
