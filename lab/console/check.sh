#!/usr/bin/env bash
# Tests /console of "playground run" in a browser: every fault with every card, accessibility
# with axe-core, and one scenario with only the keyboard. An argument is a folder for
# screenshots.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
pictures=${1:+$(cd "$1" && pwd)}
# shellcheck source=../browser/dev.sh
. "$here/../browser/dev.sh" playwright-core@1.65.1 axe-core@4.14.1 upng-js@2.1.0
cp "$here/check.mjs" "$folder"
# The URL contains a token, and other users can see the arguments of a process.
CONSOLE_URL=$console node "$folder/check.mjs" "$browser" "$url" "$folder" "$pictures"
