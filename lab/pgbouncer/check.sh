#!/usr/bin/env bash
# Runs the tests through PgBouncer in transaction mode, with the files of deploy/pgbouncer.
# The program is PGBOUNCER, or the one on the PATH, or Debian's, unpacked into a cache
# folder. The script installs nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/orders-api/pgbouncer

fail() { echo "pgbouncer-check: $*" >&2; exit 2; }

# fetch unpacks Debian's package and the libraries that are not installed.
fetch() {
	cd "$folder"
	for library in $(apt-cache depends pgbouncer | awk '$1 == "Depends:" && $2 ~ /^lib/ { print $2 }'); do
		dpkg-query -W -f '${db:Status-Status}' "$library" 2>/dev/null | grep -qx installed || echo "$library"
	done >libraries
	xargs apt-get -qq -o APT::Sandbox::User=root download pgbouncer <libraries ||
		fail "Debian's package cannot be downloaded; try apt-get update"
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
			fail "no pgbouncer on the PATH, and no apt-get to download it: install it, or set PGBOUNCER"
		folder=$(mktemp -d)
		trap 'rm -rf "$folder"' EXIT
		(fetch)
	fi
fi
version=$("$program" --version | head -n 1) || fail "$program does not run"
echo "Testing through $version …"

unset DATABASE_URL
PGBOUNCER=$program go -C lab test -vet=off -count=1 -parallel 4 -timeout 30m -tags pgbouncer ./pgbouncer
