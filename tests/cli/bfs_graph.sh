printf '# who knows whom\r\nann bob\r\nbob cy\r\ncy ann\r\ndan eve\r\n' >g.txt
$POISE bfs g.txt --root ann --root eve | sed -E 's/ +[0-9.]+ [mun]?s +[0-9.]+$//; s/ +time +Medges.s//'
$POISE bfs g.txt --root cy --output tree.txt --json | grep -E '"(reached|edges|eccentricity|valid)"'
cat tree.txt
printf '0 1\n1 2\n2 3\n' >path.el
$POISE bfs path.el --directed --root 2 -o tree.npy --binary --no-validate >/dev/null
tail -c 64 tree.npy | od -An -td8 -w16 -v
