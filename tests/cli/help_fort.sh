"$POISE" help fort
