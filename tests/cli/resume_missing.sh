$POISE walk --resume c
