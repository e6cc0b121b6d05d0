#!/usr/bin/env bash
# Tests the example shop in a browser: endings of a payment, kills, a network that is cut,
# accessibility with axe-core, and a payment with only the keyboard. An argument is a folder
# for screenshots.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
pictures=${1:+$(cd "$1" && pwd)}
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)} ||
	{ echo "shop: no Chromium found, set CHROMIUM" >&2; exit 2; }
folder=$(mktemp -d)
trap 'jobs -p | xargs kill 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --silent --no-update-notifier \
	playwright-core@1.65.1 axe-core@4.14.1
go -C "$here/../.." build -o "$folder/orders" ./cmd/orders
go -C "$here" build -o "$folder/shop" .
"$folder/shop" "$folder/orders" "$folder" >"$folder/addresses" &
server=$!
until [ -s "$folder/addresses" ]; do
	kill -0 "$server" || exit 1
	sleep 0.2
done
read -r url control <"$folder/addresses"
cp "$here/check.mjs" "$folder"
node "$folder/check.mjs" "$browser" "$url" "$control" "$folder" "$pictures" || { tail -n 20 "$folder"/*.log >&2; exit 1; }
