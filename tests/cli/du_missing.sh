$POISE du missing
