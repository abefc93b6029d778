$POISE walk --help
