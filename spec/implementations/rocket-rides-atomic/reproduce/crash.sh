# A request is charged after 150 ms and would be answered after 300 ms. The server is killed
# after 250 ms, started again, and the request is repeated while the answer is 409.
post() {
	curl -s -w ' %{http_code}\n' "$URL/rides" -H 'Authorization: one@example.com' -H "$KEY_HEADER: $key" \
		-d origin_lat=0.0 -d origin_lon=0.0 -d target_lat=1.0 -d target_lon=1.0
}
key=$(cat /proc/sys/kernel/random/uuid)
post >/dev/null & sleep 0.25
curl -s -X POST "$CONTROL/kill"
echo "charges when the server was killed: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l)"
curl -s -X POST "$CONTROL/start"
began=$(date +%s)
answer=$(post)
while [ "${answer##* }" = 409 ] && [ $(($(date +%s) - began)) -lt 60 ]; do sleep 0.2; answer=$(post); done
echo "the same request again: $answer ($(($(date +%s) - began)) s after the start)"
echo "charges: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l), expected 1"
