$POISE vnc serve
$POISE vnc serve 0
$POISE vnc serve 0.0.0.0:0 localhost:1
$POISE vnc serve --pad 1 0 localhost:1
$POISE vnc serve --secret missing 0 localhost:1
$POISE vnc serve --encodings jpeg 0 localhost:1
$POISE vnc view
$POISE vnc view 192.0.2.1:7070
$POISE vnc view --listen 0.0.0.0:0 127.0.0.1:7070
$POISE vnc view --cert missing 127.0.0.1:7070
