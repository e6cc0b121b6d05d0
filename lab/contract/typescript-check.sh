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

ORDERS_URL=$url ORDERS_API_KEY=$key STRIPE_URL=$(sed -n 's/^Stripe .* charges: \(http:.*\)/\1/p' "$log") \
	node --test --test-reporter=spec build/test/*.test.js
node build/test/mutants.js
