#!/usr/bin/env bash
# Checks the other implementations and writes results.md. It needs npm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
folder=$(mktemp -d)
stop() {
	[ ! -f "$folder/pid" ] || kill -9 "$(cat "$folder/pid")" 2>/dev/null || true
	rm -f "$folder/pid"
}
trap 'stop; rm -rf "$folder"' EXIT

go -C "$root" build -o "$folder/stripetest" ./cmd/stripetest
go -C "$here/.." build -o "$folder/" . ./others/...
cp "$here/express/package.json" "$here/express/server.js" "$folder/"
npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --silent --no-update-notifier

# free_port prints a port below the range from which connections get theirs, because a
# killed server must get the same port again.
free_port() {
	local port
	for port in $(shuf -i 20000-29999 -n 50); do
		(: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
	done
	return 1
}

# run checks the server that a command starts.
run() {
	local name=$1 level=$2
	shift 2
	ADDR=127.0.0.1:$(free_port)
	CHARGES=$folder/$name.charges KILL=$folder/kill START=$folder/start
	export ADDR CHARGES KILL START
	cat >"$START" <<-END
		#!/bin/sh
		$(printf '%q ' "$@" | sed "s|@ADDR|$ADDR|") >>"$folder/$name.log" 2>&1 &
		echo \$! >"$folder/pid"
	END
	cat >"$KILL" <<-END
		#!/bin/sh
		kill -9 "\$(cat "$folder/pid")"
		while kill -0 "\$(cat "$folder/pid")" 2>/dev/null; do sleep 0.01; done
	END
	chmod +x "$START" "$KILL"
	"$START"
	for i in $(seq 100); do
		(: </dev/tcp/"${ADDR/://}") 2>/dev/null && break
		[ "$i" -lt 100 ] || { cat "$folder/$name.log" >&2; return 1; }
		sleep 0.1
	done
	# Status 1: the server violates safety or liveness.
	"$folder/conformance" -profile "$here/../profiles/$name.yaml" -level "$level" -report "json=$folder/$name.json" || [ $? -eq 1 ]
	stop
}

run stripetest 4 "$folder/stripetest" -addr @ADDR -delay 300ms
run fiber 5 "$folder/fiber" -addr @ADDR -charges "$folder/fiber.charges"
run express 5 node "$folder/server.js"

version() { node -p "require('$folder/node_modules/$1/package.json').version"; }
"$folder/results" \
	"The fake Stripe=$folder/stripetest.json" \
	"Fiber $(go -C "$here/.." list -m -f '{{.Version}}' github.com/gofiber/fiber/v3)=$folder/fiber.json" \
	"express-idempotency $(version express-idempotency) on Express $(version express)=$folder/express.json" \
	>"$here/../results.md"
