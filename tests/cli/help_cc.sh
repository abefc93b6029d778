"$POISE" help cc
