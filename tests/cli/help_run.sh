"$POISE" help run
