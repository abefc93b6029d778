$POISE help noise
