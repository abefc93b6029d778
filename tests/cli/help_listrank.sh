$POISE help listrank
