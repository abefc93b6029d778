$POISE help vnc view
