$POISE find . -name
