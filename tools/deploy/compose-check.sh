#!/usr/bin/env bash
# Reads docker-compose.yml in every profile, then starts everything with the
# stand-in for Stripe, places an order and waits for its receipt. Needs Docker,
# and the ports of that file. The containers and their data are its own project's,
# and gone afterwards.
set -euo pipefail
cd "$(dirname "$0")/../.."
export COMPOSE_PROJECT_NAME=orders-api-check
compose() { docker compose --profile app "$@"; }
fail() { echo "compose-check: $*" >&2; exit 1; }

docker compose config --quiet
for profile in app stripe-test '*'; do
	docker compose --profile "$profile" config --quiet
done

end() {
	code=$?
	[ "$code" -eq 0 ] || compose logs --tail 50 || true
	docker compose --profile '*' down --volumes --timeout 5
	exit "$code"
}
trap end EXIT

# The profile for Stripe's test mode starts nothing without a test key.
for key in '' sk_live_canary; do
	if STRIPE_SECRET_KEY=$key docker compose --profile stripe-test run --rm --no-TTY stripe-test-key; then
		fail "the key '$key' was taken"
	fi
done
STRIPE_SECRET_KEY=sk_test_1 docker compose --profile stripe-test run --rm --no-TTY stripe-test-key

compose up --detach --build --wait --wait-timeout 300
key=$(compose run --rm --no-deps --no-TTY api accounts create --name "compose-check" | tail -n 1)
tools/deploy/order.sh http://127.0.0.1:8080 "$key" http://127.0.0.1:12111

for _ in $(seq 60); do
	mails=$(curl --silent --show-error --max-time 5 http://127.0.0.1:8025/api/v1/messages | { grep -o '"messages_count":[0-9]*' || true; })
	[ "$mails" = '"messages_count":1' ] && break
	sleep 0.5
done
[ "$mails" = '"messages_count":1' ] || fail "the receipt does not come: $mails"

# Everything stops in good order, and well within its grace period.
compose stop --timeout 90 api worker completer reaper
for service in api worker completer reaper; do
	code=$(docker inspect --format '{{.State.ExitCode}}' "$(compose ps --all --quiet "$service")")
	[ "$code" -eq 0 ] || fail "$service ended with $code"
done
echo "compose-check: one order, one charge, one receipt"
