$POISE --help walk extra
