$POISE walk --thraeds 3
