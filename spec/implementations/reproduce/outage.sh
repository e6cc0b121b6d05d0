# The provider answers 503, then works again.
# A workflow may repeat its step for a quarter of an hour before it answers, so the client waits 20 seconds.
post() {
	curl -s -m 20 -w ' %{http_code}\n' "$URL/charges" -H 'Authorization: Bearer one' -H "$KEY_HEADER: $key" \
		-H 'Content-Type: application/json' -d '{"amount":2500,"card":"visa"}'
}
key=$(cat /proc/sys/kernel/random/uuid)
curl -s -X POST "$CONTROL/interrupt"
echo "during the outage: $(post)"
curl -s -X POST "$CONTROL/restore"
echo "after it: $(post)"
sleep 2
echo "2 seconds later: $(post)"
echo "charges: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l), expected 1"
