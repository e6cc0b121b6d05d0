# To be sourced by checks that need a browser: finds Chromium (the one on the
# PATH, or CHROMIUM), installs the packages that it is given, and starts "orders
# dev". Sets browser, folder, log and url. All of it is gone when the check ends.
# shellcheck shell=bash
name=$(basename "$0" .sh)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)} ||
	{ echo "$name: no Chromium found, set CHROMIUM" >&2; exit 2; }

folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill "$server"; wait "$server" || true; }; rm -rf "$folder"' EXIT
chmod 755 "$folder" # root's PostgreSQL runs as nobody
mkdir -m 755 "$folder/cache"
npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --silent --no-update-notifier "$@"

go -C "$root" build -o "$folder/orders" ./cmd/orders
log=$folder/log
XDG_CACHE_HOME=$folder/cache LISTEN_ADDR=127.0.0.1:0 ADMIN_ADDR= "$folder/orders" dev >"$log" 2>&1 &
server=$!
for _ in $(seq 120); do
	grep -q 'API key' "$log" && break
	kill -0 "$server" || { cat "$log" >&2; exit 1; }
	sleep 0.5
done
url=$(sed -n 's/^Orders API *\(http:[^ ]*\).*/\1/p' "$log")
