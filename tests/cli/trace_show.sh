mkdir t t/a t/b
echo no trace >not
$POISE walk --names-only --threads 1 --max-in-flight 1 --trace f t >/dev/null
$POISE trace f | sed -E 's/[0-9.,]+ (ns|us|ms|s)/TIME/; s/caller +[0-9]+/caller ID/' | tr -s ' '
$POISE trace --events f | awk '{ print $3, $4, $5, $6 }'
$POISE trace --json f | grep -c '"task-end": 4'
$POISE trace
$POISE trace not f missing | grep -c caller
