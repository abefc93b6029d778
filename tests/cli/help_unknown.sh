$POISE help wakl
