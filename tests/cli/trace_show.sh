mkdir t t/a t/b
echo no trace >not
$POISE walk --names-only --threads 1 --max-in-flight 1 --trace f t >/dev/null
times='s/[0-9.,]+ (ns|us|ms|s)/TIME/g; s/caller +[0-9]+/caller ID/'
$POISE trace show f | sed -E "$times" | tr -s ' '
$POISE trace show --events f | awk '{ print $3, $4, $5, $6 }' | sed -E 's/thread=.*/thread=ID/'
$POISE trace f | sed -E "$times" | tr -s ' ' | tail -1
$POISE trace --json f | grep -A 3 '"task-end"'
$POISE trace
$POISE trace not f missing | grep -c caller
POISE_TRACE=g $POISE walk --names-only --threads 1 --max-in-flight 1 t >/dev/null
$POISE trace f g | grep -e caller -e : | sed -E "$times" | tr -s ' '
POISE_TRACE=g $POISE walk t
POISE_TRACE=h POISE_TRACE_EVENTS=none $POISE walk t
POISE_TRACE=h POISE_TRACE_EVENTS=4 $POISE walk --names-only --threads 1 --max-in-flight 1 t >/dev/null
$POISE trace h | sed -E "$times" | tr -s ' '
