$POISE help sort
