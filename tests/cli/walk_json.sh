mkdir -p t/a/b t/c
head -c 100 /dev/zero >t/a/small
head -c 5000 /dev/zero >t/a/b/medium
ln t/a/small t/c/again
ln -s nowhere t/link
printf x >"$(printf 't/odd\n\377')"
$POISE walk --json t | sed '/"interrupted"/,$d' |
    sed '/allocated_bytes\|uid\|"name"\|apparent_bytes/d'
