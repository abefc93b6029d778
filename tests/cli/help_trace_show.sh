$POISE help trace show
