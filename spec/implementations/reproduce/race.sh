# For each of ten keys, twelve requests are sent at the same time.
for _ in $(seq 10); do
	key=$(cat /proc/sys/kernel/random/uuid)
	curl -s -Z --parallel-immediate -w ' %{http_code}\n' -H 'Authorization: Bearer one' -H "$KEY_HEADER: $key" \
		-H 'Content-Type: application/json' -d '{"amount":2500,"card":"visa"}' $(yes "$URL/charges" | head -n 12) 2>/dev/null
done | grep -o '[0-9]*$' | sort | uniq -c | sed 's/^ */responses: /'
echo "charges: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l), expected 10"
