$POISE help wire cached
