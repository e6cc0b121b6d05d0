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

free_port() { node -e 'const s=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})'; }

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
	for _ in $(seq 100); do
		(: </dev/tcp/"${ADDR/://}") 2>/dev/null && break
		sleep 0.1
	done
	# Status 1: the server does not conform.
	"$folder/conformance" -profile "$here/../profiles/$name.yaml" -level "$level" -format json -output "$folder/$name.json" || [ $? -eq 1 ]
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
