ln -s "$POISE" poise
PATH=$PWD:$PATH
figures() {
    sed 's/, [0-9,]* records/, N records/; s/, [0-9.]* KiB/, B/'
}
mkdir far near
POISE_TRACE=far/t $POISE walk --json far > far/walk.json
$POISE trace gather --child "poise trace gather far/t" near/t |
    figures
$POISE trace show far/t | sed 's/ .*//' > far/shown
$POISE trace show near/t | sed 's/ .*//' | cmp - far/shown && echo the same
$POISE trace gather --child "poise trace gather far/t" near/t | figures
$POISE trace gather --child 'exit 3' other
$POISE trace gather --once --child "poise trace gather nothing" other
$POISE trace gather
$POISE trace gather --child true a b
