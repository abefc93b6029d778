$POISE help desync run
