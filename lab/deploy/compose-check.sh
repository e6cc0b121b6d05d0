#!/usr/bin/env bash
# Starts all containers with the fake Stripe, creates an order and waits for its
# receipt. Needs Docker and the ports of docker-compose.yml. It deletes its containers and
# their data at the end.
set -euo pipefail
cd "$(dirname "$0")/../.."
export COMPOSE_PROJECT_NAME=orders-api-check
compose() { docker compose --profile app "$@"; }
fail() { echo "compose-check: $*" >&2; exit 1; }

end() {
	code=$?
	[ "$code" -eq 0 ] || compose logs --tail 50 || true
	docker compose --profile '*' down --volumes --timeout 5
	exit "$code"
}
trap end EXIT

compose up --detach --build --wait --wait-timeout 300
curl --silent --show-error --retry 30 --retry-all-errors --retry-delay 1 --fail --output /dev/null http://127.0.0.1:8080/readyz
key=$(compose run --rm --no-deps --no-TTY api accounts create --name "compose-check" | tail -n 1)
lab/deploy/order.sh http://127.0.0.1:8080 "$key" http://127.0.0.1:12111

for _ in $(seq 60); do
	mails=$(curl --silent --show-error --max-time 5 http://127.0.0.1:8025/api/v1/messages | { grep -o '"messages_count":[0-9]*' || true; })
	[ "$mails" = '"messages_count":1' ] && break
	sleep 0.5
done
[ "$mails" = '"messages_count":1' ] || fail "no receipt after 30 seconds: $mails"

# Each service stops without an error within its grace period.
compose stop --timeout 90 api worker completer reaper
for service in api worker completer reaper; do
	code=$(docker inspect --format '{{.State.ExitCode}}' "$(compose ps --all --quiet "$service")")
	[ "$code" -eq 0 ] || fail "$service exited with $code"
done
echo "compose-check: one order, one charge, one receipt"
