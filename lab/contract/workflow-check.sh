#!/usr/bin/env bash
# Runs the workflows of api/*.arazzo.yaml against "playground run" with Redocly Respect, then
# checks that a workflow with a wrong expectation fails.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../dev.sh
. "$here/../dev.sh" @redocly/cli@2.77.0

mkdir "$folder/api"
cp "$root/openapi.yaml" "$folder"
cp "$root"/api/*.arazzo.yaml "$folder/api"
cd "$folder/api"
workflows=(*.arazzo.yaml)
sed 's/"paid"/"unpaid"/' orders.arazzo.yaml >wrong.arazzo.yaml

# Other users can see the arguments of a process, so the token is in its environment.
respect() {
	REDOCLY_CLI_RESPECT_INPUT="run=$(tr -d - </proc/sys/kernel/random/uuid),token=$key" \
		REDOCLY_CLI_RESPECT_SERVER="orders=$url" npx redocly respect "$@"
}

npx redocly lint "${workflows[@]}"
respect "${workflows[@]}"
if respect wrong.arazzo.yaml --workflow replay >wrong.log 2>&1 || ! grep -q '1 failed, 1 total' wrong.log; then
	cat wrong.log >&2
	echo "A workflow with a wrong expectation must fail." >&2
	exit 1
fi
