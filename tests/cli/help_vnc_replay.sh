$POISE help vnc replay
