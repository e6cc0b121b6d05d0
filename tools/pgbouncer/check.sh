#!/usr/bin/env bash
# Runs the tests through PgBouncer in transaction mode, set up as deploy/pgbouncer
# says. The program is PGBOUNCER, or on the PATH, or Debian's, which is fetched
# into a cache folder; nothing is installed, and nothing runs as root.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/orders-api/pgbouncer

fail() { echo "pgbouncer-check: $*" >&2; exit 2; }

# fetch unpacks Debian's package, and what it needs and this machine has not.
fetch() {
	cd "$folder"
	for library in $(apt-cache depends pgbouncer | awk '$1 == "Depends:" && $2 ~ /^lib/ { print $2 }'); do
		dpkg-query -W -f '${db:Status-Status}' "$library" 2>/dev/null | grep -qx installed || echo "$library"
	done >libraries
	xargs apt-get -qq -o APT::Sandbox::User=root download pgbouncer <libraries ||
		fail "Debian's package cannot be downloaded; does apt-get update help?"
	for package in *.deb; do dpkg -x "$package" unpacked; done
	mkdir -p "$cache"
	cp -R unpacked/. "$cache"
	cat >"$cache/pgbouncer" <<-END
		#!/bin/sh
		LD_LIBRARY_PATH=$(echo "$cache"/usr/lib/*-linux-gnu) exec "$cache/usr/sbin/pgbouncer" "\$@"
	END
	chmod +x "$cache/pgbouncer"
}

program=${PGBOUNCER:-$(PATH=$PATH:/usr/sbin command -v pgbouncer || true)}
if [ -z "$program" ]; then
	program=$cache/pgbouncer
	if [ ! -x "$program" ]; then
		command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
			fail "no pgbouncer on the PATH, and only Debian's can be fetched: install it, or name it in PGBOUNCER"
		folder=$(mktemp -d)
		trap 'rm -rf "$folder"' EXIT
		(fetch)
	fi
fi
version=$("$program" --version | head -n 1) || fail "$program does not run"
echo "Testing through $version …"

# Left out is what has, of its own, what no pooled session has: timeouts that it
# chose itself, prepared statements, or a lock for migrations, as orders dev has. They
# are in make test.
unset DATABASE_URL
DBTEST_PGBOUNCER=$program go test -vet=off -count=1 -parallel 4 -tags pgbouncer \
	-skip '^(TestAllocations|TestAuthenticate_lookupTimeout|TestCommit_delayed|TestPlans_useIndexes|TestConsole.*|TestDemo_doubleCharge|TestDemo_onStripe|TestDev_ownServices|TestDocuments.*|TestServe_fromEmptyDatabase|TestGenerated|TestLookup_plan|TestMigrate_.*)$' \
	./idempotency ./orders ./receipts ./api ./internal/accounts ./internal/crash ./cmd/orders
