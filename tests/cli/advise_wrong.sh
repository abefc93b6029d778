"$POISE" advise
echo "$?"
"$POISE" advise --tim 0x ./nothing
echo "$?"
"$POISE" advise --time 5s ./nothing
echo "$?"
