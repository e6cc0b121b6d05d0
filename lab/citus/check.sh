#!/usr/bin/env bash
# Runs the service on a Citus cluster of a coordinator and two workers. It uses the
# programs in CITUS_BIN, or a PostgreSQL on this machine that has the extension. If there is
# none, it builds the extension from the source tree in CITUS_SOURCE, or from a clone, for
# Debian's PostgreSQL, which it unpacks into a cache folder. It installs nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/orders-api/citus

fail() { echo "citus-check: $*" >&2; exit 2; }

# PostgreSQL does not run as root, and its user cannot enter root's home. Root uses the
# folder of embeddedpg.CacheDir instead.
if [ "$(id -u)" -eq 0 ] && [ -z "${XDG_CACHE_HOME:-}" ]; then
	shared=/var/tmp/orders-api-0
	mkdir -p -m 711 "$shared"
	[ -O "$shared" ] && [ ! -L "$shared" ] || fail "$shared is not a folder of this user: remove it"
	cache=$shared/citus
fi

has_citus() { [ -x "$1/postgres" ] && [ -f "$1/../lib/citus.so" ]; }

bin=${CITUS_BIN:-}
if [ -n "$bin" ]; then
	has_citus "$bin" || fail "the PostgreSQL of CITUS_BIN=$bin has no citus.so"
else
	for folder in "$cache"/usr/lib/postgresql/*/bin /usr/lib/postgresql/*/bin; do
		if has_citus "$folder"; then bin=$folder; fi
	done
fi
if [ -z "$bin" ]; then
	source=${CITUS_SOURCE:-}
	if [ -z "$source" ]; then
		source=$(mktemp -d)
		trap 'rm -rf "$source"' EXIT
		git -c advice.detachedHead=false clone --quiet --depth 1 --branch v13.2.2 https://github.com/citusdata/citus "$source" ||
			fail "set CITUS_SOURCE to a source tree of Citus 13.2.1 or later, or CITUS_BIN to the programs of a" \
				"PostgreSQL that has it, such as that of the package postgresql-15-citus-13.2"
	fi
	lab/citus/build.sh "$source" "$cache"
	for folder in "$cache"/usr/lib/postgresql/*/bin; do bin=$folder; done
fi
unset DATABASE_URL
if [ -z "${CITUS_LIBRARIES:-}" ]; then # of an unpacked server
	for folder in "${bin%/usr/lib/postgresql/*}"/usr/lib/*-linux-gnu; do CITUS_LIBRARIES=$folder; done
	export CITUS_LIBRARIES
fi
echo "Testing on $("$bin/postgres" --version) with Citus from $bin …"
CITUS_BIN=$bin go -C lab test -vet=off -count=1 -timeout 60m -tags citus -v ./citus "$@"
