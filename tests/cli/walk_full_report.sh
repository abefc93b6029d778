# A report that cannot be written: an error, and no figures for a program that
# would take them for the whole; people see both.
mkdir t
touch t/a
$POISE walk --json --report /dev/full t
echo "exit $?"
$POISE walk --report /dev/full t | sed -n '1s/ in .*//p'
echo "exit ${PIPESTATUS[0]}"
