$POISE help compare
