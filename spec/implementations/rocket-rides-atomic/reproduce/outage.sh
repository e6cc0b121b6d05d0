# The provider answers 503, then works again. The same request is sent before, after, and with
# a new key.
post() {
	curl -s -w ' %{http_code}\n' "$URL/rides" -H 'Authorization: one@example.com' -H "$KEY_HEADER: $key" \
		-d origin_lat=0.0 -d origin_lon=0.0 -d target_lat=1.0 -d target_lon=1.0
}
key=$(cat /proc/sys/kernel/random/uuid)
curl -s -X POST "$CONTROL/interrupt"
echo "during the outage: $(post)"
curl -s -X POST "$CONTROL/restore"
echo "after it: $(post)"
sleep 2
echo "2 seconds later: $(post)"
key=$(cat /proc/sys/kernel/random/uuid)
echo "with a new key: $(post)"
echo "charges: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l), expected 1"
