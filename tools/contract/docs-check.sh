#!/usr/bin/env bash
# Opens /docs of "orders dev" in a browser, presses "Test Request" and "Send",
# and wants to see 201.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../browser/dev.sh
. "$here/../browser/dev.sh" playwright-core@1.65.1
cp "$here/docs-check.mjs" "$folder"
# The URL has a token, which other users must not see among the arguments.
DOCS_URL=$docs node "$folder/docs-check.mjs" "$browser" "$url" "$key" "$folder"
