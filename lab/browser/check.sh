#!/usr/bin/env bash
# Tests "playground run" in a browser, which is CHROMIUM or a Chromium on the PATH:
#   check.sh docs [PICTURES]      sends requests at /docs on a phone's width, and checks the page
#                                 at two widths, light and dark; screenshots in PICTURES
#   check.sh console [PICTURES]   every fault with every card, accessibility with axe-core, and
#                                 one scenario with only the keyboard; screenshots in PICTURES
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
what=$1 pictures=${2:+$(cd "$2" && pwd)}
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)} ||
	{ echo "$what: no Chromium found, set CHROMIUM" >&2; exit 2; }
# shellcheck source=../dev.sh
. "$here/../dev.sh" playwright-core@1.65.1 axe-core@4.14.1 upng-js@2.1.0
cp "$here/$what.mjs" "$folder"
# The URLs contain a token, and other users can see the arguments of a process.
case $what in
docs) DOCS_URL=$docs node "$folder/docs.mjs" "$browser" "$url" "$key" "$folder" "$pictures" ;;
console) CONSOLE_URL=$console node "$folder/console.mjs" "$browser" "$url" "$folder" "$pictures" ;;
esac
