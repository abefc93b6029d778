printf 'a b\nb c\nc d\nx y\n' >g.txt
$POISE bfs g.txt --root b --components | tail -1
$POISE bfs g.txt --root b --components --json | grep -E 'components"|diameter'
$POISE bfs --scale 8 --roots 2 --components --no-validate | tail -1
