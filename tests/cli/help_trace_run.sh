$POISE help trace run
