mkdir cache
$POISE wire cached cache >figures &
server=$!
while [ ! -S cache/socket ]; do sleep 0.01; done
$POISE wire cached cache
stat -c %a cache/socket
kill $server
wait $server
cat figures
$POISE wire cached
$POISE wire cached file/missing
