printf '0 1\n1 2\n' >g.el
$POISE bfs; echo $?
$POISE bfs g.el --scale 3; echo $?
$POISE bfs g.el g.el; echo $?
$POISE bfs g.el --root 3; echo $?
$POISE bfs g.el --root x; echo $?
$POISE bfs g.el --output t.txt; echo $?
$POISE bfs g.el --directed --undirected; echo $?
$POISE bfs none.el; echo $?
printf '0 1\n1 x y\n-3\n' >bad.el
$POISE bfs bad.el; echo $?
$POISE bfs g.el --report none/page.html >out; echo $?
$POISE bfs --scale 3 --directed; echo $?
$POISE bfs convert --scale 3 --names x.el; echo $?
