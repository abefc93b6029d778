# Wrong use of poise wan, and errors that name the line.
printf 'site a 1\nsite b 1\nlink a c 1ms 1Mbit\n' >t.wan
for words in "" "upp t.wan" "up" "up t.wan" "up none.wan" "exec" "run" \
    "record here" "--name ../x status"; do
    $POISE wan $words
    echo "exit $?"
done
