$POISE du -s -a .
