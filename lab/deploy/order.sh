#!/usr/bin/env bash
# Creates an order, replays it, and requires the same response and one charge:
#   lab/deploy/order.sh http://127.0.0.1:8080 ok_… [http://127.0.0.1:12111]
# The last argument is the address of the fake. Without it, charges are not checked.
set -euo pipefail
api=$1 key=$2 stripe=${3:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() { echo "order: $*" >&2; exit 1; }

place() {
	curl --silent --show-error --max-time 100 --dump-header "$folder/$1.head" --output "$folder/$1.json" \
		--header "Authorization: Bearer $key" \
		--header "Content-Type: application/json" \
		--header "Idempotency-Key: $purchase" \
		--data '{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa","items":[{"sku":"tea","quantity":2,"unit_amount":1250}]}' \
		"$api/v1/orders"
	grep -q '^HTTP/1.1 201' "$folder/$1.head" || fail "$(head -n 1 "$folder/$1.head") $(cat "$folder/$1.json")"
}

purchase=smoke-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
place first
place again
grep -q '"status":"paid"' "$folder/first.json" || fail "not paid: $(cat "$folder/first.json")"
cmp "$folder/first.json" "$folder/again.json" || fail "the replay differs"
grep -qi '^Idempotent-Replayed: true' "$folder/again.head" || fail "the second response is not a replay"
if [ -n "$stripe" ]; then
	intent=$(grep -o 'pi_[A-Za-z0-9]*' "$folder/first.json")
	order=$(grep -o '^{"id":"[^"]*' "$folder/first.json" | cut -d'"' -f4)
	curl --silent --show-error --fail --max-time 10 --header "Authorization: Bearer sk_test_fake" \
		--output "$folder/intents.json" "$stripe/v1/payment_intents?limit=100"
	intents=$({ grep -o "\"order_id\": *\"$order\"" "$folder/intents.json" || true; } | wc -l)
	[ "$intents" -eq 1 ] || fail "$intents payment intents for order $order"
	curl --silent --show-error --fail --max-time 10 --header "Authorization: Bearer sk_test_fake" \
		"$stripe/v1/payment_intents/$intent" | grep -q '"amount_received": *2500' || fail "$intent is not charged"
fi
echo "order: two requests, one order, the same response to both"
