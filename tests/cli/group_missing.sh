$POISE wire
