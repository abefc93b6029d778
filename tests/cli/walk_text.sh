mkdir -p t/a/b t/c
head -c 100 /dev/zero >t/a/small
head -c 5000 /dev/zero >t/a/b/medium
ln t/a/small t/c/again
ln -s nowhere t/link
mkfifo t/pipe
$POISE walk t | sed 's/ in .*/ in TIME/; /^disk usage/,$d; s/\(disk usage\|apparent size\) .*/\1 SIZE/' | tr -s ' '
