printf "not a checkpoint at all" >c; $POISE walk --resume c
