# Words of cp that ask for what is always so.
mkdir dir && echo a >dir/a
$POISE copy -pR dir one
$POISE copy -ra dir two
find one two | sort
# What --verify did is said.
$POISE copy -T -v --verify dir/a three 2>&1 | sed "s/ in .*;/ in T;/"
$POISE copy -T --json --verify dir four | grep -o '"verified": 1'
