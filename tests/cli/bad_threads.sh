$POISE walk --threads 0
