for policy in rond-robin serial:0 serial:x round-robin:3 priority; do
    "$POISE" run --policy $policy ./nothing
    echo "$?"
done
for placement in graf graph graph: block:1; do
    "$POISE" run --placement $placement ./nothing
    echo "$?"
done
