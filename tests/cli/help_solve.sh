$POISE help solve
