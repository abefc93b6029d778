$POISE walk --resume c /
