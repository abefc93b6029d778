# A root whose only edges are loops: valid, and they count, unless asked not to.
printf '0 1\n2 2\n2 2\n0 0\n' >loops.el
strip() { sed -E 's/ +[0-9.]+ [mun]?s +[0-9.]+$//; s/ +time +Medges.s//'; }
for option in --count-loops --no-count-loops --directed; do
    $POISE bfs loops.el --root 2 --root 0 $option >out; echo $?
    strip <out
done
# What reference 3 counts is what the specification counts without the loops.
$POISE bfs --scale 6 --roots 3 --json | grep -E '"(loops|edges|invalid)"' >all
$POISE bfs --scale 6 --roots 3 --json --no-count-loops | grep -E '"(loops|edges|invalid)"' >without
paste all without
