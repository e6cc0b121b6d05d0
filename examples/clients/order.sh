#!/bin/sh
# Sends the JSON in FILE exactly once: order.sh PATH FILE. FILE.key stores the key.
#   ./order.sh /v1/orders order-77.json
#   ./order.sh /v1/orders/ORDER_ID/cancel cancel-9.json
# After a crash, or to correct FILE, run it again: the key stays. It needs curl 7.84 and jq.
set -eu
path=$1 file=$2
case $path in */cancel) success=200 ;; *) success=201 ;; esac # a cancel creates nothing

# Store the key first. Unlike mv, ln does not replace the key of another run.
if ! [ -e "$file.key" ]; then
  od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$file.key.$$"
  sync
  ln "$file.key.$$" "$file.key" || true
  rm "$file.key.$$"
fi
sync # always, because the run that created the key may have stopped before its sync
key=$(cat "$file.key")

# With --disable, no .curlrc can make curl follow redirects or repeat the request. Before 8.4, curl limits only
# a size that it knows, so the rate is limited, too.
limit=1
while :; do
  response=$(curl --disable --silent --max-time 90 --max-filesize 1000000 --limit-rate 100k --header @- --data-binary "@$file" \
    --write-out '\n%{http_code} %header{retry-after}\n%{content_type}' "$ORDERS_URL$path" <<END
Authorization: Bearer $ORDERS_API_KEY
Content-Type: application/json
Idempotency-Key: $key
END
  ) || response=$(printf '\n000\nnone') # no response, or an incomplete one
  type=$(printf %s "$response" | tail -n 1)
  status=$(printf %s "$response" | tail -n 2 | head -n 1)
  body=$(printf %s "$response" | sed '$d' | sed '$d')
  after=${status#* } status=${status%% *}
  get() { printf %s "$body" | jq --slurp --raw-output "select(length == 1) | .[] | objects | $1 // empty" 2>/dev/null || true; }

  case "$status ${type%%;*} $(get .retry)" in
    "$success application/json "*)
      [ -z "$(get type)" ] || { printf '%s\n' "$body"; exit 0; } ;;
    '202 application/json '*)
      intent=$(get .action.payment_intent_id)
      [ -z "$intent" ] || { echo "The customer must approve $intent. Then run this again." >&2; exit 3; } ;;
    *' application/problem+json '*new-key)
      printf '%s\n' "$body"; echo 'Final: the key is used. Another card needs another FILE.' >&2; exit 1 ;;
    *' application/problem+json '*corrected | *' application/problem+json '*never)
      printf '%s\n' "$body"; echo 'Rejected. An earlier attempt may have succeeded: keep the key.' >&2; exit 1 ;;
  esac

  # After any other response, send the same request again, after Retry-After and a random time.
  case $after in '' | *[!0-9]*) after=0 ;; esac
  sleep "$after"
  sleep $(($(od -An -N2 -tu2 /dev/urandom) % (limit + 1)))
  limit=$((limit < 30 ? limit * 2 : 30))
done
