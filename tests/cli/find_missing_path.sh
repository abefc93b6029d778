$POISE find missing -name x
