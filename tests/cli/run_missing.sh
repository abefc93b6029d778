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
