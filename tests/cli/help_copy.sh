$POISE help copy
