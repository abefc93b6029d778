$POISE help wire analyse
