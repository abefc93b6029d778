# In memory and out of it; what is wrong is named.
$POISE listrank --generate 64K --lists 3 list
$POISE listrank list ranks && $POISE listrank --check list ranks
$POISE listrank --memory 2M list little && cmp ranks little && echo the same
$POISE listrank --check --json list list
printf '\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0' >twice
$POISE listrank twice out
printf '\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' >cycle
$POISE listrank cycle out
printf '\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0' >past
$POISE listrank past out
$POISE listrank --weights past twice out
$POISE listrank twice twice
$POISE listrank list
$POISE listrank --generate 3 a b
POISE_FAULT=write:9:ENOSPC $POISE listrank --memory 2M list out
code=$?
ls
exit $code
