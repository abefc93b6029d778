# Wrong use of `poise run` is its own failure, told apart from the program's.
"$POISE" run
echo $?
"$POISE" run -V 0 ./prog
echo $?
"$POISE" run --ploicy serial ./prog
echo $?
"$POISE" run --delay soon ./prog
echo $?
"$POISE" run -V 2 ./no-such-program --version
echo $?
# What would be found out at the end, or would mean nothing, is said at once.
for words in "--report /nowhere/page.html" "--profile-json /nowhere/p" \
    "--swap always" "--context 1G"; do
    "$POISE" run -V 2 $words ./no-such-program
    echo $?
done
PATH=/nowhere "$POISE" run -n 2 ./no-such-program
echo $?
