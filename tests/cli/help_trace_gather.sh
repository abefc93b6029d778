$POISE help trace gather
