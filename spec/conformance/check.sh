#!/usr/bin/env bash
# Checks the orders API at all levels. "playground run" has the database, which is the store.
# Two processes of "orders serve" are two addresses of the service; the first one is killed
# and paused. The fake Stripe is the dependency that is interrupted.
# The arguments are flags of the command, such as -level 2 -seed 7.
set -euo pipefail
flags=("$@")
set -- # dev.sh would install them
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

# A crashed request is continued after LEASE_DURATION.
export STEP_TIMEOUT=2s LEASE_DURATION=4s COMPLETER_GRACE=5m CHARGE_WINDOW=23h KEY_RETENTION=72h
export LOG_LEVEL=warn ADMIN_ADDR='' SMTP_URL='' DATABASE_URL='' STRIPE_WEBHOOK_SECRET=''
export STRIPE_SECRET_KEY=sk_test_conformance

programs=$(mktemp -d)
go -C "$root" build -o "$programs/" ./cmd/stripetest
go -C "$here" build -o "$programs/conformance" .
"$programs/stripetest" -addr 127.0.0.1:0 -delay 200ms 2>"$programs/stripe.log" &
stripe=$!
stop() {
	kill -CONT "$stripe" "${postmaster:-$stripe}" 2>/dev/null || true
	jobs -p | xargs kill 2>/dev/null || true
	for file in "$programs"/pid*; do
		[ ! -f "$file" ] || kill -9 "$(cat "$file")" 2>/dev/null || true
	done
	wait
	rm -rf "$programs" "${folder:-$programs}"
}
trap stop EXIT

# found waits for a line of a log.
found() {
	for _ in $(seq 240); do
		[ -z "$(sed -n "$2" "$1")" ] || { sed -n "$2" "$1" | head -n 1; return; }
		sleep 0.25
	done
	cat "$1" >&2
	return 1
}

STRIPE_API_BASE=$(found "$programs/stripe.log" 's/^fake Stripe: //p')
export STRIPE_API_BASE
# shellcheck source=../../lab/dev.sh
. "$root/lab/dev.sh"
trap stop EXIT

DATABASE_URL=$(found "$log" "s/^.*psql '\([^']*\)'.*/\1/p")
export DATABASE_URL
word() { awk 'END { print $NF }'; }
account=$("$folder/orders" accounts create --name Conformance)
ORDERS_KEY=$(word <<<"$account")
account=$(sed -n 's/.*\([0-9a-f]\{8\}-[0-9a-f-]\{27\}\).*/\1/p' <<<"$account" | head -n 1)
ORDERS_SECOND_KEY=$("$folder/orders" accounts keys create --account "$account" | word)
ORDERS_OTHER_KEY=$("$folder/orders" accounts create --name Other | word)
export ORDERS_KEY ORDERS_SECOND_KEY ORDERS_OTHER_KEY

cat >"$programs/start" <<-END
	#!/bin/sh
	"$folder/orders" serve >>"$programs/serve.log" 2>&1 &
	echo \$! >"$programs/pid"
END
cat >"$programs/kill" <<-END
	#!/bin/sh
	kill -9 "\$(cat "$programs/pid")"
	while kill -0 "\$(cat "$programs/pid")" 2>/dev/null; do sleep 0.01; done
END
# Only the reaper has a short retention.
cat >"$programs/expire" <<-END
	#!/bin/sh
	sleep 1
	STEP_TIMEOUT=100ms LEASE_DURATION=200ms COMPLETER_GRACE=300ms CHARGE_WINDOW=400ms KEY_RETENTION=500ms \
		exec "$folder/orders" reaper
END
# All processes of the database are killed except the first one. It is stopped until the
# database starts again, so that "playground run" does not end.
postmaster=$(head -n 1 "$(find "$folder/cache" -name postmaster.pid)")
cat >"$programs/kill_store" <<-END
	#!/bin/sh
	kill -STOP $postmaster
	kill -9 \$(ps -o pid= --ppid $postmaster)
END
chmod +x "$programs/start" "$programs/kill" "$programs/expire" "$programs/kill_store"

# A first start chooses the port.
listening='s/.*listening.*address"\{0,1\}[=:]"\{0,1\}\([0-9.]*:[0-9]*\).*/\1/p'
LISTEN_ADDR=127.0.0.1:0 LOG_LEVEL=info "$programs/start"
LISTEN_ADDR=$(found "$programs/serve.log" "$listening")
mv "$programs/pid" "$programs/pid.second"
mv "$programs/serve.log" "$programs/second.log"
ORDERS_SECOND_URL=http://$LISTEN_ADDR
LISTEN_ADDR=127.0.0.1:0 LOG_LEVEL=info "$programs/start"
LISTEN_ADDR=$(found "$programs/serve.log" "$listening")
export LISTEN_ADDR ORDERS_URL=http://$LISTEN_ADDR ORDERS_SECOND_URL
export KILL="$programs/kill" START="$programs/start" EXPIRE="$programs/expire" STRIPE_PID=$stripe
export SERVER_PID="$programs/pid" KILL_STORE="$programs/kill_store" STORE_PID=$postmaster

"$programs/conformance" -profile "$here/profiles/orders.yaml" "${flags[@]}"
