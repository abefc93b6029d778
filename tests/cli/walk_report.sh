mkdir -p t/a
$POISE walk --report r.html t >/dev/null
head -n 2 r.html
tail -n 1 r.html
$POISE walk --report /nonexistent/r.html t >/dev/null
