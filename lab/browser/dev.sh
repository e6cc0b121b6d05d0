# Checks with a browser source this file. It sets browser, which is CHROMIUM or a Chromium
# on the PATH, and the variables of ../dev.sh.
# shellcheck shell=bash
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)} ||
	{ echo "$(basename "$0" .sh): no Chromium found, set CHROMIUM" >&2; exit 2; }
# shellcheck source=../dev.sh
. "$(dirname "${BASH_SOURCE[0]}")/../dev.sh" "$@"
