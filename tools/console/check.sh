#!/usr/bin/env bash
# Clicks through /console of "orders dev" in a browser: every failure with every
# card, and wants every end state to hold. Looks for faults of accessibility with
# axe-core, and plays one order with the keyboard alone. With a folder as its
# argument it leaves pictures there. Needs Chromium: the one on the PATH, or
# CHROMIUM. Data and packages live in a folder that is gone afterwards.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
pictures=${1:+$(cd "$1" && pwd)}
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)} ||
	{ echo "console-check: no Chromium found, set CHROMIUM" >&2; exit 2; }

folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill "$server"; wait "$server" || true; }; rm -rf "$folder"' EXIT
chmod 755 "$folder" # root's PostgreSQL runs as nobody
mkdir -m 755 "$folder/cache"
cp "$here/check.mjs" "$folder"
npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --silent --no-update-notifier \
	playwright-core@1.65.1 axe-core@4.14.1 upng-js@2.1.0

go -C "$here/../.." build -o "$folder/orders" ./cmd/orders
XDG_CACHE_HOME=$folder/cache LISTEN_ADDR=127.0.0.1:0 "$folder/orders" dev >"$folder/log" 2>&1 &
server=$!
for _ in $(seq 120); do
	grep -q 'API key' "$folder/log" && break
	kill -0 "$server" || { cat "$folder/log" >&2; exit 1; }
	sleep 0.5
done
url=$(sed -n 's/^Orders API *\(http:[^ ]*\).*/\1/p' "$folder/log")
node "$folder/check.mjs" "$browser" "$url" "$folder" "$pictures" 
