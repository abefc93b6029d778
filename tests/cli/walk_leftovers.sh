mkdir t
echo x >t/x
hide() { sed -E 's/\.[0-9a-f]{16}\./.TOKEN./' "$@"; }
# Killed before its inventory could replace the old one.
exec 3>&2 2>/dev/null
POISE_FAULT=rename:1:KILL $POISE walk -o o.csv t >/dev/null || echo killed
exec 2>&3
touch o.csv.0123456789abcdef.0.1.part.mine o.csv.0123456789.0.1.part
ls | hide | sort
$POISE walk -o o.csv t 2>&1 >/dev/null | hide
ls | hide | sort
rm o.csv.????????????????.*.part o.csv.????????????????.tmp
$POISE walk -o o.csv t >/dev/null
