$POISE find --help
