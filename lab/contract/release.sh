#!/usr/bin/env bash
# Copies openapi.yaml to the released contract, with which CI compares it: release.sh VERSION.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${1-}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || { echo "usage: make -C lab release-spec VERSION=1.2.3" >&2; exit 2; }
if grep -q "^## \[$version\]" CHANGELOG.md; then
	echo "release-spec: CHANGELOG.md already contains $version" >&2
	exit 1
fi

edit() { awk -v version="$version" -v today="$(date -u +%F)" "$2" "$1" >"$1.new" && cat "$1.new" >"$1" && rm "$1.new"; }
edit openapi.yaml '!done && /^  version: / { $0 = "  version: " version; done = 1 } { print }'
edit CHANGELOG.md '{ print } $0 == "## [Unreleased]" { print "\n## [" version "] - " today }'
cp openapi.yaml lab/contract/testdata/openapi.released.yaml
echo "The released contract is now $version. Review git diff and commit."
