$POISE wire analyze
