mkdir -p t/a
printf 1234 >t/a/f
$POISE walk -o list.csv t >/dev/null && wc -l <list.csv
$POISE walk -o list.jsonl t >/dev/null && wc -l <list.jsonl
$POISE walk -o list.sqlite t >/dev/null && head -c 15 list.sqlite && echo
$POISE walk --format=csv -o list t >/dev/null && cmp <(cut -d, -f1-12 list) <(cut -d, -f1-12 list.csv)
ls
