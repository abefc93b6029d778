$POISE walk --policy=neer
