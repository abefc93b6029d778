$POISE find . "(" -name x
