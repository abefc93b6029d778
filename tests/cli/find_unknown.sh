$POISE find . -nmae x
