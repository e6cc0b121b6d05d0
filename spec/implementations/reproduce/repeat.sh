# The same request, twice.
key=$(cat /proc/sys/kernel/random/uuid)
for time in first second; do
	echo "$time: $(curl -s -w ' %{http_code}' "$URL/charges" -H 'Authorization: Bearer one' -H "$KEY_HEADER: $key" \
		-H 'Content-Type: application/json' -d '{"amount":2500,"card":"visa"}')"
done
echo "charges: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l), expected 1"
