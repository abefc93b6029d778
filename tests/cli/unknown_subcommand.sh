$POISE wlak /
