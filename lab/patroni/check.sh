#!/usr/bin/env bash
# Kills the leader of three servers under Patroni while the program takes orders. The
# programs are PATRONI, ETCD and those of the folder PG_BIN, or the ones on the PATH.
# Without Patroni or etcd, Debian's are unpacked into a cache folder. The script installs
# nothing. Its arguments are flags of go test, such as -run paused.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/orders-api/patroni

fail() { echo "patroni-check: $*" >&2; exit 2; }

# fetch unpacks Debian's packages, with the dependencies that are not installed.
fetch() {
	cd "$folder"
	mkdir -p packages "$cache"
	cd packages
	apt-get -s -o Debug::NoLocking=1 install --no-install-recommends patroni etcd-server | awk '$1 == "Inst" { print $2 }' |
		xargs apt-get -qq -o APT::Sandbox::User=root download ||
		fail "Debian's packages cannot be downloaded; try apt-get update"
	for package in *.deb; do dpkg -x "$package" ../unpacked; done
	rm -rf "$cache"
	mv ../unpacked "$cache"
	rm -rf ../packages
}

# clean kills the servers, whose working directories are below the folder.
clean() {
	for process in /proc/[0-9]*; do
		case $(readlink "$process/cwd") in
			"$folder"/*) kill -KILL "${process#/proc/}" 2>/dev/null || true ;;
		esac
	done
	rm -rf "$folder"
}

[ -d /proc/self ] || fail "this check needs Linux"
initdb=${PG_BIN:+$PG_BIN/initdb}
initdb=${initdb:-$(command -v initdb || find /usr/lib/postgresql -path '*/bin/initdb' 2>/dev/null | sort -V | tail -n 1)}
[ -x "$initdb" ] || fail "no PostgreSQL server: apt-get install postgresql, or set PG_BIN to the folder of its programs"
PG_BIN=$(dirname "$(readlink -f "$initdb")")

# Below /var/tmp, which the servers' user can access if root starts the check.
folder=$(mktemp -d /var/tmp/orders-patroni-XXXXXX)
trap clean EXIT
trap 'exit 1' INT TERM
chmod 711 "$folder"

patroni=${PATRONI:-$(command -v patroni || true)}
etcd=${ETCD:-$(command -v etcd || true)}
if [ -z "$patroni" ] || [ -z "$etcd" ]; then
	command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
		fail "no patroni or no etcd on the PATH, and no apt-get: install Debian's packages patroni and etcd-server, or set PATRONI and ETCD"
	[ -x /usr/bin/python3 ] || fail "Patroni needs Python: apt-get install python3"
	[ -x "$cache/usr/bin/patroni" ] || (fetch)
	cp -R "$cache" "$folder/programs"
	etcd=${etcd:-$folder/programs/usr/bin/etcd}
	if [ -z "$patroni" ]; then
		patroni=$folder/patroni
		cat >"$patroni" <<-END
			#!/bin/sh
			export PYTHONPATH=$folder/programs/usr/lib/python3/dist-packages
			export LD_LIBRARY_PATH=$(echo "$folder"/programs/usr/lib/*-linux-gnu)
			exec /usr/bin/python3 $folder/programs/usr/bin/patroni "\$@"
		END
		chmod 755 "$patroni"
	fi
fi
version=$("$patroni" --version) || fail "$patroni does not run"
echo "Testing $version, $("$etcd" --version | head -n 1), $("$PG_BIN/postgres" --version) …"
# The arguments come later, so a -skip of theirs has precedence.
if [ "$(printf '%s\n' "${version##* }" 3.1.0 | sort -V | head -n 1)" != 3.1.0 ]; then
	echo "In Patroni before 3.1.0, a leader that was paused can take its lock back: TestPatroni_pausedHeartbeat is left out, and TestPatroni_pausedLeader can fail. See lab/results/README.md, Patroni."
	set -- -skip TestPatroni_pausedHeartbeat "$@"
fi

unset DATABASE_URL
export PG_BIN
PATRONI=$patroni ETCD=$etcd PATRONI_FOLDER=$folder \
	go -C lab test -vet=off -count=1 -timeout 40m -v -tags patroni ./patroni "$@"
