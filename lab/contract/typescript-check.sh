#!/usr/bin/env bash
# Packs client/typescript, compiles it with the usual settings, tests it with a fake server and with
# "playground run", runs the backend of its README, checks that the tests detect each removed rule,
# and runs the samples of examples/clients (sh, curl, jq, Python). With the argument "types", it only
# packs and compiles.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
client=$here/../../client/typescript
# shellcheck disable=SC2046 # one word for each package
# shellcheck source=../dev.sh
. "$here/../dev.sh" $(sed -n '/"devDependencies"/,/}/s/^ *"\(.*\)": "\([0-9.]*\)",\{0,1\}$/\1@\2/p' "$client/package.json")

work=$folder/client/typescript
mkdir -p "$work"
cp "$root/openapi.yaml" "$root/LICENSE" "$folder"
cp -R "$client/orders.ts" "$client/package.json" "$client/tsconfig.json" "$client/test" "$work"
cp "$root"/examples/clients/order.* "$work"
go -C "$root" build -o "$work/order-go" ./examples/clients
cd "$work"
grep -q "^  version: $(node -p 'require("./package.json").version')$" "$folder/openapi.yaml" || { echo "package.json has not the contract's version" >&2; exit 1; }
npm pack --silent
npx tsc --project .

mkdir "$folder/shop" # with the backend of the README
sed -n '/```js/,/```/s/^   //p' "$client/README.md" | sed '/^```/d' >"$folder/shop/backend.mjs"
echo "import { Orders } from 'orders-client'; export const orders = new Orders({ baseUrl: 'http://a', apiKey: 'k' });" >"$folder/shop/backend.cts"
npm install --prefix "$folder/shop" --offline --no-audit --no-fund --silent ./orders-client-*.tgz
node build/test/compile.js "$folder/shop"
[ "${1-}" != types ] || exit 0
port=$(node -e 'const s = require("net").createServer().listen(0, () => { console.log(s.address().port); s.close() })')
sed -i.orig "s/3000/$port/" "$folder/shop/backend.mjs"
(cd "$folder/shop" && node -e 'require("orders-client").newKey()' && ORDERS_URL=$url ORDERS_API_KEY=$key exec node backend.mjs) &
for card in pm_card_visa:paid pm_card_visa_chargeDeclined:failed pm_card_threeDSecure2Required:approve; do
	curl --silent --fail --retry 20 --retry-connrefused --retry-delay 1 -X POST "http://127.0.0.1:$port/buy/${card%:*}" | grep -q "\"state\":\"${card#*:}\""
done

# It answers an event before it reads the order: this API accepts the connection and never responds.
mkfifo "$folder/silent"
node -e 'require("net").createServer().listen(0, "127.0.0.1", function () { console.log(this.address().port) })' >"$folder/silent" &
read -r silent <"$folder/silent"
secret=whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=
other=$((port < 60000 ? port + 1000 : port - 1000))
sed "s/\b$port\b/$other/" "$folder/shop/backend.mjs" >"$folder/shop/silent.mjs"
(cd "$folder/shop" && ORDERS_URL=http://127.0.0.1:$silent ORDERS_API_KEY=$key EVENTS_SECRET=$secret exec node silent.mjs) &
curl --silent --retry 20 --retry-connrefused --retry-delay 1 --output /dev/null "http://127.0.0.1:$other/"
event='{"id":"8c0e4b1d-6f2a-8b37-9d15-3e7a60c2f481","type":"order.paid","data":{"order_id":"3eeb7e96-e59c-840f-9cb1-a089daba079f"}}'
sent=$(date +%s)
signature=$(printf '1.%s.%s' "$sent" "$event" | openssl dgst -sha256 -mac HMAC -macopt key:0123456789abcdef0123456789abcdef -binary | base64)
status=$(curl --silent --max-time 9 --output /dev/null --write-out '%{http_code}' -H 'webhook-id: 1' -H "webhook-timestamp: $sent" \
	-H "webhook-signature: v1,$signature" --data "$event" "http://127.0.0.1:$other/events")
[ "$status" = 204 ] || { echo "The backend of the README answered an event with $status." >&2; exit 1; }

ORDERS_URL=$url ORDERS_API_KEY=$key STRIPE_URL=$(sed -n 's/^Stripe .* charges: \(http:.*\)/\1/p' "$log") \
	node --test --test-reporter=spec build/test/*.test.js
node build/test/mutants.js
