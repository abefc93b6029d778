$POISE --help
