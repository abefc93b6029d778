# Keys are random, and so is what they cost where two fingerprints meet by
# chance: that is rare enough with forty bits. Sizes depend on the version of
# Zstandard, the segments do not.
seq 1 20000 >v1
sed 's/^77/seventy-seven/; 500d' v1 >v2
$POISE wire analyse v1 v2 | awk '{ print $1, $2, $3 }'
$POISE wire analyse --segmenter gear --size 128 --report page.html --json v1 v2 >out.json
grep -E '"(bytes|last_bytes|segmenter|size|segments|repairs)"' out.json
grep -c '<svg' page.html
grep -o 'the sender has lost its cache' page.html
$POISE wire analyse
$POISE wire analyse --segmenter geer v1
$POISE wire analyse --size 4 v1
$POISE wire analyse absent
