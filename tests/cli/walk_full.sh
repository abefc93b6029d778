# A write that fails, as on a full disk: one line, and no half-written file.
mkdir t
touch t/a
POISE_FAULT=write:1:ENOSPC $POISE walk -o list.csv t >/dev/null
code=$?
ls
exit $code
