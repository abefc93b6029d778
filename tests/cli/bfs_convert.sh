printf '# people\nann bob\nbob cy\ncy ann\n' >names.txt
"$POISE" bfs convert names.txt g.graph | sed 's/: got.*//'
cat g.graph g.graph.names
"$POISE" bfs convert g.graph g.pg | sed 's/: got.*//'
"$POISE" bfs convert --json g.pg g.mtx | grep -v seconds
cat g.mtx
"$POISE" bfs convert --directed names.txt --to snap back | sed 's/: got.*//'
cat back
"$POISE" bfs convert --scale 3 --edgefactor 1 k.gr | sed 's/: got.*//'
head -2 k.gr
"$POISE" bfs convert --undirected k.gr k.sg | sed 's/: got.*//'
gzip -c back | "$POISE" bfs convert /dev/stdin p.el | sed 's/: got.*//'
tail -n 1 p.el
ls
