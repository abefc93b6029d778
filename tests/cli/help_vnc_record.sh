$POISE help vnc record
