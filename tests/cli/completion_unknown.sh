$POISE completion tcsh
