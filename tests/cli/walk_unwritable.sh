mkdir t
$POISE walk --report missing/r.html t
$POISE walk --checkpoint missing/c t
$POISE walk -o missing/i.csv t 2>&1 | sed -E 's/\.[0-9a-f]{16}\./.TOKEN./'
$POISE walk --report t/ t
