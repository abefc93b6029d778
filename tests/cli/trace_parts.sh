# What parts of Poise record arrives: how many records of which type each rank has.
show() {
    echo "$1:" $($POISE trace show --json --events "$1" |
        awk -F'"' '$2 == "rank" { rank = $3 } $2 == "ring" { last = rank }
            $2 == "type" && last != "" { n[$4 last]++; last = "" }
            END { for (i in n) print i n[i] }' | tr -d ' ' | grep -v thread | sort)
}
POISE_TRACE=bfs $POISE bfs --scale 6 --roots 1 -j 1 >/dev/null && show bfs
$POISE sort --generate 2000 --type u64 in >/dev/null
POISE_TRACE=sort $POISE sort -j 1 --type u64 in -o out >/dev/null && show sort
printf '0 0\n100 0\n' >plate.txt
POISE_TRACE=solve $POISE solve --sweeps 2 --block 1 plate.txt rest.txt && show solve
mkdir d && echo a >d/a && echo b >d/b
printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' >here && chmod +x here
POISE_TRACE=send $POISE send --cache= -e ./here --program "$POISE" d host:"$PWD"/e && show send
POISE_TRACE=walk $POISE walk --names-only --threads 1 d >/dev/null && show walk
