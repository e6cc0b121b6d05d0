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

# build builds Citus from a source tree against Debian's PostgreSQL 15, unpacked into a folder: build
# SOURCE FOLDER. It needs gcc, make, git, apt-get and dpkg.
build() (
	source=$(cd "$1" && pwd)
	folder=$2
	for program in gcc make apt-get dpkg; do
		command -v "$program" >/dev/null || fail "building Citus needs $program"
	done
	[ -x "$source/configure" ] || fail "$source is no source tree of Citus"

	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	echo "Downloading Debian's PostgreSQL 15 and the libraries that Citus is built with …"
	(
		cd "$work"
		apt-get -qq -o APT::Sandbox::User=root download \
			postgresql-15 postgresql-client-15 postgresql-server-dev-15 libpq5 libpq-dev \
			libzstd1 libzstd-dev liblz4-1 liblz4-dev libssl-dev zlib1g zlib1g-dev \
			libkrb5-3 libgssapi-krb5-2 libk5crypto3 libkrb5support0 libcom-err2 libkrb5-dev krb5-multidev comerr-dev \
			libselinux1 libselinux1-dev libxml2 libxml2-dev libxslt1.1 libxslt1-dev libpam0g libpam0g-dev libreadline8 libreadline-dev ||
			fail "Debian's packages cannot be downloaded; does apt-get update help?"
		for package in *.deb; do dpkg -x "$package" root; done
		find root -name '*.a' -path '*-linux-gnu*' -delete # so that the linker takes the shared libraries
	)
	mkdir -p "$folder"
	cp -R "$work/root/." "$folder"
	folder=$(cd "$folder" && pwd)

	echo "Building Citus from $source (about three minutes) …"
	cp -R "$source" "$work/citus"
	cd "$work/citus"
	touch configure # newer than configure.ac, whatever the order of the copy: no autoconf is needed
	# PostgreSQL 15.20 has a function of this name.
	grep -rl --include='*.[ch]' have_createdb_privilege src | xargs -r sed -i 's/\bhave_createdb_privilege\b/citus_&/'
	libraries=$(echo "$folder"/usr/lib/*-linux-gnu)
	export PATH="$(echo "$folder"/usr/lib/postgresql/*/bin):$PATH"
	export CPPFLAGS="-I$folder/usr/include -I$folder/usr/include/$(basename "$libraries") -I$folder/usr/include/mit-krb5"
	export LDFLAGS="-L$libraries -L$libraries/mit-krb5"
	{
		./configure --without-libcurl --quiet
		make -j"$(nproc)" with_llvm=no extension
		make with_llvm=no extension install
	} >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; fail "the build failed"; }
	chmod -R a+rX "$folder"
)

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
	build "$source" "$cache"
	for folder in "$cache"/usr/lib/postgresql/*/bin; do bin=$folder; done
fi
unset DATABASE_URL
if [ -z "${CITUS_LIBRARIES:-}" ]; then # of an unpacked server
	for folder in "${bin%/usr/lib/postgresql/*}"/usr/lib/*-linux-gnu; do CITUS_LIBRARIES=$folder; done
	export CITUS_LIBRARIES
fi
echo "Testing on $("$bin/postgres" --version) with Citus from $bin …"
CITUS_BIN=$bin go -C lab test -vet=off -count=1 -timeout 60m -tags citus -v ./citus "$@"
