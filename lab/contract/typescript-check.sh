#!/usr/bin/env bash
# Generates the types of client/typescript from openapi.yaml, tests it with a fake server
# and with "playground run", checks that the tests detect each removed rule, and runs the
# samples of examples/clients (sh, curl, jq, Python).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
client=$here/../../client/typescript
# shellcheck disable=SC2046 # one word for each package
# shellcheck source=../dev.sh
. "$here/../dev.sh" $(sed -n '/"devDependencies"/,/}/s/^ *"\(.*\)": "\([0-9.]*\)",\{0,1\}$/\1@\2/p' "$client/package.json")

# npm has written a package.json of its own.
cp -R "$client/orders.ts" "$client/package.json" "$client/tsconfig.json" "$client/test" "$folder"
cp "$root"/examples/clients/order.* "$folder"
go -C "$root" build -o "$folder/order-go" ./examples/clients
cd "$folder"
npx openapi-typescript "$root/openapi.yaml" --output contract.ts
npx tsc --project .
ORDERS_URL=$url ORDERS_API_KEY=$key STRIPE_URL=$(sed -n 's/^Stripe .* charges: \(http:.*\)/\1/p' "$log") \
	node --test --test-reporter=spec build/test/*.test.js
node build/test/mutants.js
