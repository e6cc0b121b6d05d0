# Two accounts send the same request with the same key.
key=$(cat /proc/sys/kernel/random/uuid)
for credential in one two; do
	echo "Bearer $credential: $(curl -s -w ' %{http_code}' "$URL/charges" -H "Authorization: Bearer $credential" -H "$KEY_HEADER: $key" \
		-H 'Content-Type: application/json' -d '{"amount":2500,"card":"visa"}')"
done
for account in 1 2; do
	echo "charges of account $account: $(curl -s "$CONTROL/charges?account=$account" | grep -o '"ch_[0-9]*"' | wc -l), expected 1"
done
