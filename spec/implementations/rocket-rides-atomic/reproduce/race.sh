# Twelve requests with one key, sent at the same time, and one after them.
post() {
	curl -s -o /dev/null -w '%{http_code}\n' "$URL/rides" -H 'Authorization: one@example.com' -H "$KEY_HEADER: $key" \
		-d origin_lat=0.0 -d origin_lon=0.0 -d target_lat=1.0 -d target_lon=1.0
}
key=$(cat /proc/sys/kernel/random/uuid)
for _ in $(seq 12); do post & done | sort | uniq -c | sed 's/^ */responses: /'
echo "after them: $(post)"
echo "charges: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l), expected 1"
