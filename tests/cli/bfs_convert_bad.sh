say() {
    echo "\$ $*"
    shift
    "$POISE" "$@" 2>&1
    echo "exit $?"
}
printf '0 1\n0 x\n' >bad.el
printf '%%%%MatrixMarket matrix coordinate pattern general\n9 9 9000000\n1 2\n' >big.mtx
: >empty.el
say poise bfs convert bad.el out.pg
say poise bfs convert --memory 1M big.mtx out.pg
say poise bfs convert empty.el out.pg
say poise bfs convert missing.el out.pg
say poise bfs convert bad.el
say poise bfs convert --seed 3 bad.el out.pg
say poise bfs convert --from metsi bad.el out.pg
say poise bfs convert --directed --undirected bad.el out.pg
say poise bfs convert --scale 3 out.what
ls
