$POISE xyzzy
