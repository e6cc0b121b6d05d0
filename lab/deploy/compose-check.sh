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
	rm -rf "${folder:-}"
	docker compose --profile '*' down --volumes --timeout 5
	exit "$code"
}
trap end EXIT

compose up --detach --build --wait --wait-timeout 300
key=$(compose run --rm --no-deps --no-TTY api accounts create --name "compose-check" | tail -n 1)

folder=$(mktemp -d)
# An order and its replay have the same response, and there is one charge.
place() {
	curl --silent --show-error --max-time 100 --dump-header "$folder/$1.head" --output "$folder/$1.json" \
		--header "Authorization: Bearer $key" \
		--header "Content-Type: application/json" \
		--header "Idempotency-Key: $purchase" \
		--data '{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa","items":[{"sku":"tea","quantity":2,"unit_amount":1250}]}' \
		http://127.0.0.1:8080/v1/orders
	grep -q '^HTTP/1.1 201' "$folder/$1.head" || fail "$(head -n 1 "$folder/$1.head") $(cat "$folder/$1.json")"
}

purchase=smoke-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
place first
place again
grep -q '"status":"paid"' "$folder/first.json" || fail "not paid: $(cat "$folder/first.json")"
cmp "$folder/first.json" "$folder/again.json" || fail "the replay differs"
grep -qi '^Idempotent-Replayed: true' "$folder/again.head" || fail "the second response is not a replay"
intent=$(grep -o 'pi_[A-Za-z0-9]*' "$folder/first.json")
order=$(grep -o '^{"id":"[^"]*' "$folder/first.json" | cut -d'"' -f4)
curl --silent --show-error --fail --max-time 10 --header "Authorization: Bearer sk_test_fake" \
	--output "$folder/intents.json" "http://127.0.0.1:12111/v1/payment_intents?limit=100"
intents=$({ grep -o "\"order_id\": *\"$order\"" "$folder/intents.json" || true; } | wc -l)
[ "$intents" -eq 1 ] || fail "$intents payment intents for order $order"
curl --silent --show-error --fail --max-time 10 --header "Authorization: Bearer sk_test_fake" \
	"http://127.0.0.1:12111/v1/payment_intents/$intent" | grep -q '"amount_received": *2500' || fail "$intent is not charged"

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
