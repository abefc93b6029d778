$POISE help tune
