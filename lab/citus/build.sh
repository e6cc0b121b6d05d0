#!/usr/bin/env bash
# Builds Citus from a source tree against Debian's PostgreSQL 15, unpacked into a folder:
# build.sh SOURCE FOLDER. It needs gcc, make, git, apt-get and dpkg.
set -euo pipefail
source=$(cd "$1" && pwd)
folder=$2

fail() { echo "citus-check: $*" >&2; exit 2; }
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
