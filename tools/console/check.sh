#!/usr/bin/env bash
# Uses /console of "orders dev" in a browser: every fault with every card. All checks of
# the page must pass. It also checks accessibility with axe-core, and runs one scenario
# with the keyboard alone. With a folder as its argument it writes screenshots there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
pictures=${1:+$(cd "$1" && pwd)}
# shellcheck source=../browser/dev.sh
. "$here/../browser/dev.sh" playwright-core@1.65.1 axe-core@4.14.1 upng-js@2.1.0
cp "$here/check.mjs" "$folder"
# The URL has a token, which other users must not see among the arguments.
CONSOLE_URL=$console node "$folder/check.mjs" "$browser" "$url" "$folder" "$pictures"
