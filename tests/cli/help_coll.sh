"$POISE" help coll
