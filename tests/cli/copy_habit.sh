# Words of cp that ask for what is always so.
mkdir dir && echo a >dir/a
$POISE copy -pR dir one
$POISE copy -ra dir two
find one two | sort
