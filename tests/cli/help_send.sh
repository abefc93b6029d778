$POISE send --help
