# Checks source this file with the npm packages that they need. It installs them and starts
# "playground run". It sets root, folder, log, url, docs, console and key. At the end of the
# check it deletes the folder and stops all background jobs.
# shellcheck shell=bash
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$(mktemp -d)
trap 'jobs -p | xargs kill 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
chmod 755 "$folder" # PostgreSQL does not run as root
mkdir -m 755 "$folder/cache"
[ $# -eq 0 ] || npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --silent --no-update-notifier "$@"

go -C "$root" build -o "$folder/" ./cmd/orders ./cmd/playground
log=$folder/log
(umask 077 && : >"$log") # it contains the API key
XDG_CACHE_HOME=$folder/cache LISTEN_ADDR=127.0.0.1:0 ADMIN_ADDR= "$folder/playground" run >"$log" 2>&1 &
server=$!
for _ in $(seq 120); do
	grep -q 'API key' "$log" && break
	kill -0 "$server" || { cat "$log" >&2; exit 1; }
	sleep 0.5
done
url=$(sed -n 's/^Orders API *\(http:[^ ]*\).*/\1/p' "$log")
# shellcheck disable=SC2034 # for the check
docs=$(sed -n 's/^Orders API .* contract: *\(http:[^ ]*\).*/\1/p' "$log")
# shellcheck disable=SC2034 # for the check
console=$(sed -n 's/^Console *\(http:[^ ]*\).*/\1/p' "$log")
# shellcheck disable=SC2034 # for the check
key=$(sed -n 's/^API key *\(ok_.*\)/\1/p' "$log")
