#!/usr/bin/env bash
# Creates an order at /docs of "playground run" in a browser, with "Test Request" and "Send".
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../browser/dev.sh
. "$here/../browser/dev.sh" playwright-core@1.65.1
cp "$here/docs-check.mjs" "$folder"
# The URL contains a token, and other users can see the arguments of a process.
DOCS_URL=$docs node "$folder/docs-check.mjs" "$browser" "$url" "$key" "$folder"
