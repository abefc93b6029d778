# What rm refuses is refused; a dry run lists; a purge keeps what is new.
mkdir -p tree/dir/empty && touch tree/a tree/dir/b.old tree/dir/c && ln -s dir tree/link
$POISE remove tree/. tree/dir/.. none
$POISE remove --dry-run /
$POISE remove tree/link/
$POISE remove --dry-run tree | sort
$POISE remove -v tree --where -name '*.old'
$POISE remove tree --where -delete
$POISE remove -r tree/link tree/a
find tree | sort
$POISE remove -f none tree
ls -A
$POISE remove
$POISE remove -f
