$POISE help
