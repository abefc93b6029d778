# How far a run is: plain lines, or on a terminal a table that is drawn over
# itself, in bold where colours are wanted; and small multiples in the page.
printf '0 0 0 0\n100 0 0 0\n100 0 0 0\n0 0 0 0\n' >plate.txt
run="$POISE solve -n 2 --sweeps 40 --block 2 --block-time 10ms --live"
$run --report page.html plate.txt out.txt 2>said
tail -n 1 said | sed 's/^.*: version/version/; s/, .*;/;/'
for what in Versions Speed Fetched; do
    grep -c "<figcaption>$what .*each node<" page.html
done
$POISE solve --live --sweeps 3 plate.txt out.txt 2>&1 |
    sed 's/^.*: version/version/; s/, .*;/;/'
esc=$(printf '\033')
unset NO_COLOR
TERM=xterm script -qec "$run plate.txt out.txt" drawn >/dev/null 2>&1
grep -q "$esc\[[0-9]*A" drawn && grep -q "$esc\[1m" drawn && echo in place, bold
NO_COLOR=1 TERM=xterm script -qec "$run plate.txt out.txt" drawn >/dev/null 2>&1
grep -q "$esc\[[0-9]*A" drawn && ! grep -q "$esc\[[0-9;]*m" drawn && echo in place, plain
