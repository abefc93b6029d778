$POISE tunnel --help
