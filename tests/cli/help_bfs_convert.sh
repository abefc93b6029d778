$POISE help bfs convert
