$POISE help bfs
