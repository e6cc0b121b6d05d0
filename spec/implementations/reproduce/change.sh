# A key is used for 2500, then for 3750.
key=$(cat /proc/sys/kernel/random/uuid)
for amount in 2500 3750; do
	echo "$amount: $(curl -s -w ' %{http_code}' "$URL/charges" -H 'Authorization: Bearer one' -H "$KEY_HEADER: $key" \
		-H 'Content-Type: application/json' -d "{\"amount\":$amount,\"card\":\"visa\"}")"
done
echo "amounts: $(curl -s "$CONTROL/charges?account=1" | grep -o '"amount":[0-9]*' | tr '\n' ' ')"
echo "charges: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l), expected 1"
