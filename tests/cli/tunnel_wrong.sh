# What is no tunnel, and why.
$POISE tunnel
echo "exit $?"
$POISE tunnel a:1 b:2
echo "exit $?"
$POISE tunnel 127.0.0.1:7070
echo "exit $?"
$POISE tunnel -L 8080:web:80
echo "exit $?"
$POISE tunnel --serve 127.0.0.1:0
echo "exit $?"
$POISE tunnel --allow 127.0.0.1:80
echo "exit $?"
$POISE tunnel --cache= --serve 0.0.0.0:0 --allow 127.0.0.1:80
echo "exit $?"
$POISE tunnel --cache= -L 0.0.0.0:0:web:80 127.0.0.1:7070
echo "exit $?"
$POISE tunnel --cache= -L 0:web:80 192.0.2.1:7070
echo "exit $?"
$POISE tunnel --cache= -L web:80 127.0.0.1:7070
echo "exit $?"
$POISE tunnel --cert x --serve 127.0.0.1:0 --allow 127.0.0.1:80
echo "exit $?"
$POISE tunnel --make-secret key && stat -c %a key && wc -c <key
$POISE tunnel --make-secret key
echo "exit $?"
chmod 644 key
$POISE tunnel --secret key --serve 127.0.0.1:0 --allow 127.0.0.1:80
