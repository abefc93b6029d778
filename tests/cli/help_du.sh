$POISE help du
