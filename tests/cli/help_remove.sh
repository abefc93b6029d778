$POISE help remove
