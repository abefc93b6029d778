$POISE walk --balance=neer
