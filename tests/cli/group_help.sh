$POISE help wire; $POISE desync --help
