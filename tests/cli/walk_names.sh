mkdir -p t/a/b
touch t/x t/a/y
$POISE walk -n t | sed 's/ in .*/ in TIME/'
