# Targets that cannot be: nothing is made of them.
echo a >A && echo b >B && mkdir dir
$POISE copy A B NEW; echo "exit $?"
$POISE copy A B A; echo "exit $?"
$POISE copy dir/none NEW; echo "exit $?"
$POISE copy A NEW/; echo "exit $?"
$POISE copy A; echo "exit $?"
ls
