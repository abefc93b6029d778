# What cannot be sent, and why.
$POISE send
echo "exit $?"
$POISE send here
echo "exit $?"
$POISE send a:x b:y .
echo "exit $?"
$POISE send a:x b:y
echo "exit $?"
$POISE send --cache= missing there
