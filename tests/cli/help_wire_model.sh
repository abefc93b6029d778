$POISE help wire model
