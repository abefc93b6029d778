$POISE vnc record
$POISE vnc record localhost out
$POISE vnc record '[::1' out
$POISE vnc record --encodings jpeg 127.0.0.1::1 out
$POISE vnc record --updates 0 127.0.0.1::1 out
$POISE vnc record --password-file missing 127.0.0.1::1 out
$POISE vnc record 127.0.0.1::1 out
ls
$POISE vnc replay
$POISE vnc replay missing
echo something else, of more than fifteen bytes > other
$POISE vnc replay other
$POISE vnc replay --json --picture - other
