"$POISE" help advise
