#!/bin/sh
# The Agent of shipping: sh, curl and jq. It keeps one file for each booking, named by the idempotency key.
#
#   ARRIERO_URL=http://127.0.0.1:8000 ARRIERO_TOKEN=... BOOKINGS=bookings sh shipping.sh
set -u
mkdir -p "$BOOKINGS" "$BOOKINGS/barred"

post() { # VERB, body on standard input
    curl -sS -X POST -H "Authorization: Bearer $ARRIERO_TOKEN" -H "Content-Type: application/json" --data-binary @- \
        --max-time 30 -w '\n%{http_code}' "$ARRIERO_URL/v1/agents/shipping/requests:$1" 2>/dev/null
}

while :; do
    if ! taken=$(printf '{"limit":20,"wait_seconds":10}' | post take) || [ "${taken##*
}" != 200 ]; then
        sleep 0.2 # the gateway is away: ask again soon
        continue
    fi
    printf '%s' "${taken%
*}" | jq -r '.requests[] | [.task, .capability, .kind, .idempotency_key, .forward_key // "-", .arguments.order, .arguments.grams] | @tsv' |
        while IFS="$(printf '\t')" read -r task capability kind key forward order grams; do
            if [ "$kind" = compensation ]; then
                : > "$BOOKINGS/barred/$forward" # first: the booking under this key must not be made later
                rm -f "$BOOKINGS/$forward"
                outcome='"status":"succeeded"'
            elif [ -e "$BOOKINGS/barred/$key" ]; then
                outcome='"status":"permanent","code":"barred","message":"this booking was cancelled"'
            elif [ "$grams" -gt 30000 ]; then
                outcome='"status":"permanent","code":"too_heavy","message":"more than 30 kg"'
            else
                printf '%s %s\n' "$order" "$grams" > "$BOOKINGS/$key.new.$$" && # once for a key, however often it is asked for
                    mv "$BOOKINGS/$key.new.$$" "$BOOKINGS/$key"
                outcome="\"status\":\"succeeded\",\"result\":\"booking-$order\""
            fi
            printf '{"task":"%s","capability":"%s",%s}' "$task" "$capability" "$outcome" | post report > /dev/null
        done
done
