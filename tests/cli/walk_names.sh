mkdir -p t/a/b
touch t/x t/a/y
$POISE walk --names-only t | sed 's/ in .*/ in TIME/'
