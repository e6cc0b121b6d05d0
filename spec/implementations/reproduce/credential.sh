# Two credentials of one account send the same request with the same key.
key=$(cat /proc/sys/kernel/random/uuid)
for credential in one uno; do
	echo "Bearer $credential: $(curl -s -w ' %{http_code}' "$URL/charges" -H "Authorization: Bearer $credential" -H "$KEY_HEADER: $key" \
		-H 'Content-Type: application/json' -d '{"amount":2500,"card":"visa"}')"
done
echo "charges: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l), expected 1"
