# Each kind of difference, as text and as JSON; exit codes are diff's.
mkdir -p a/d/e b/d && echo same >a/d/f && cp -p a/d/f b/d/f
echo one >a/content && echo two >b/content
touch b/extra a/mode b/mode && chmod 644 a/mode && chmod 600 b/mode
ln -s x a/link && ln -s y b/link && touch a/type && mkdir b/type
touch a/first && ln a/first a/second && touch b/first b/second
$POISE compare --metadata mode,links a b | sort
echo "exit ${PIPESTATUS[0]}"
$POISE compare --metadata none a/d b/d
$POISE compare --metadata none a/content b/content
$POISE compare --json --metadata none a b --where -name content |
    sed -E 's/"(mtime|seconds|uid|gid)":[^,}]*/"\1":0/g'
$POISE compare --metadata none -q a/d/f b/d/f && echo same
$POISE compare --metadata none --stats a b 2>&1 >lines |
    sed 's/read in [^;]*;/read in T;/'
$POISE compare a none
$POISE compare --where -name x a b
$POISE compare --metadata colour a b
$POISE compare a
