# To be sourced by checks that need a browser: sets browser, which is Chromium (the one on
# the PATH, or CHROMIUM), and what ../dev.sh sets.
# shellcheck shell=bash
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)} ||
	{ echo "$(basename "$0" .sh): no Chromium found, set CHROMIUM" >&2; exit 2; }
# shellcheck source=../dev.sh
. "$(dirname "${BASH_SOURCE[0]}")/../dev.sh" "$@"
