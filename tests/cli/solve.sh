# The same to the last bit, however many compute; what cannot be is named.
printf '0 0 0 0\n100 0 0 0\n100 0 0 0\n0 0 0 0\n' >plate.txt
$POISE solve --sweeps 1 plate.txt one.txt && cat one.txt
$POISE solve --sweeps 200 plate.txt rest.txt
for how in '-n 2' '-n 3 --block 1 --replicate-every 7' '-j 2 --block 2' \
    '-n 2 --block 1 --adapt 10 --ablation policy=misses' '-n 2 --check'; do
    $POISE solve --sweeps 200 $how plate.txt other.txt
    cmp rest.txt other.txt && echo the same
done
$POISE solve --sweeps 60 --method sor --omega 1.3 plate.txt sor.txt
cut -d' ' -f2 sor.txt | cut -c1-9
# Images, plain and not, grey and coloured.
printf 'P2\n# a comment\n3 3\n255\n0 0 0 0 255 0 0 0 0\n' >dot.pgm
$POISE solve --sweeps 1 --insulated dot.pgm spread.pgm && od -An -tu1 -c spread.pgm
$POISE solve --sweeps 1 --hold 255 --insulated dot.pgm held.pgm && od -An -tu1 held.pgm
printf 'P6 1 2 255\n\377\377\377\000\000\000' >two.ppm
$POISE solve --sweeps 0 two.ppm two.txt && cat two.txt
$POISE solve --sweeps 0 two.ppm coloured.ppm && od -An -tu1 coloured.ppm
$POISE solve --sweeps 50 --report page.html plate.txt out.txt
grep -c 'Convergence' page.html
$POISE solve --sweeps 9 -n 2 --block 1 --adapt 4 --report page.html plate.txt out.txt
grep -q 'Nodes of blocks, versions 0 to 3' page.html && echo chunks
# Node 0 is one as others are; of a large plate no cell is a sum of numbers.
sed '/Nodes of blocks, versions 0 /,/<.svg>/!d' page.html |
    sed -n 's/.*<title>\(row [^<]*\)<.title>.*/\1/p'
yes '0 0 9' | head -n 300 >long.txt
$POISE solve --sweeps 1 -n 2 --block 1 --report page.html long.txt out.txt
sed '/Nodes of blocks, versions 0 /,/<.svg>/!d' page.html |
    sed -n 's/.*: \([a-z ]* [0-9][0-9]*\)<.title>.*/\1/p' | sort -u
$POISE solve --sweeps 5 -n 2 --block 1 --json plate.txt out.txt |
    sed '/"progress"/,/^  ]/d; s/"[a-z_]*seconds": *[0-9.e+-]*/"seconds": T/g; s/"peak_bytes": *[0-9]*/"peak_bytes": B/g; s/"fetched[a-z_]*": *[0-9]*/"fetched": F/g; s/"\(re\|plan_\)\(port[a-z_]*\|bytes\)": *[0-9]*/"told": N/g; s/"lines": *[0-9]*/"lines": L/; s/"balanced": *[a-z]*/"balanced": W/; s/"waited_share": *[0-9.e+-]*/"waited_share": W/g; s/"hits": *[0-9]*/"hits": H/g; s/"misses": *[0-9]*/"misses": H/g'
printf '# who\n0 0-1 0-4\n1 1-4 0-4 0-9\n2 1-4 0-2 9-201\n1 1-4 2-4 9-201\n' >chunks
$POISE solve --sweeps 200 -n 3 --block 1 --chunks chunks plate.txt other.txt
cmp rest.txt other.txt && echo the same
