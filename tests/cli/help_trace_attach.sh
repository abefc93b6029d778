$POISE help trace attach
