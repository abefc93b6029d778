$POISE walk --queue-memory 3Q
