$POISE help vnc serve
