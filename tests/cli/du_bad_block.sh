$POISE du -B 3Q .
