#!/usr/bin/env bash
# Requests every example of openapi.yaml from Prism, a mock server. It works in a
# temporary folder; packages come from npm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$here/mock-check.mjs" "$folder"
npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --silent --no-update-notifier \
	@stoplight/prism-cli@5.16.0 yaml@2.8.1
node "$folder/mock-check.mjs" "$here/../../openapi.yaml"
