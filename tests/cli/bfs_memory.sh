# --memory holds for graphs that are made, too, and for all that is done.
$POISE bfs --scale 12 --memory 511K; echo $?
$POISE bfs --scale 12 --memory 600K; echo $?
$POISE bfs convert --scale 12 --memory 511K out.el; echo $?
printf '0 9999\n' >thin.el
$POISE bfs thin.el --memory 340K; echo $?
$POISE bfs --scale 12 --memory 2M --roots 1 >out; echo $?
