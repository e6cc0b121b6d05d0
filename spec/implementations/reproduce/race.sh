# Twelve requests with one key, sent at the same time.
key=$(cat /proc/sys/kernel/random/uuid)
for _ in $(seq 12); do
	curl -s -o /dev/null -w '%{http_code}\n' "$URL/charges" -H 'Authorization: Bearer one' \
		-H "$KEY_HEADER: $key" -H 'Content-Type: application/json' -d '{"amount":2500,"card":"visa"}' &
done | sort | uniq -c | sed 's/^ */responses: /'
echo "charges: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l), expected 1"
