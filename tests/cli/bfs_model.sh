$POISE bfs --scale 8 --roots 2 -j 1 --method bottom-up --no-validate --json --model nodes=4,sockets=2,latency=3us,bandwidth=5G,stream=2G,copy=9G | grep -E '"(nodes|sockets|latency_seconds|node_bytes_per_second|exchange|bottom_up_bytes)"'
$POISE bfs --scale 8 --roots 1 -j 1 --model nodes=4 --model nodes=8,sockets=1 | grep -A1 nodes | tr -s ' '
$POISE bfs --scale 8 --model nodes
$POISE bfs --scale 8 --model cores=3
$POISE bfs --scale 8 --model bandwidth=0
$POISE bfs --scale 8 --model nodes=0
