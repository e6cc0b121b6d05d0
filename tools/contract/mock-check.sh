#!/usr/bin/env bash
# Lets Prism, a mock server, serve openapi.yaml, and asks it for every example.
# Everything happens in a folder that is gone afterwards; packages come from npm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$here/mock-check.mjs" "$folder"
npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --silent --no-update-notifier \
	@stoplight/prism-cli@5.16.0 yaml@2.8.1
node "$folder/mock-check.mjs" "$here/../../openapi.yaml"
