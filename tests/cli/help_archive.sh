$POISE help archive
