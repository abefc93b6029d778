# What is cut short must not remove what it was meant to spare.
mkdir t
touch t/a
$POISE remove t --wher -name b
$POISE remove t --where=-name
$POISE copy t u --whe -name b
$POISE compare t t --w -name b
$POISE archive t t.tar --wh -name b
ls t
$POISE remove t --where -name b
ls t
