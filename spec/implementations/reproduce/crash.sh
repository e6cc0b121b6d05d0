# A request is charged after 400 ms and would be answered after 800 ms. The server is killed
# when the charge is listed, started again, and the request is repeated for up to 40 seconds while the answer is 409.
post() {
	curl -s -w ' %{http_code}\n' "$URL/charges" -H 'Authorization: Bearer one' -H "$KEY_HEADER: $key" \
		-H 'Content-Type: application/json' -d '{"amount":2500,"card":"visa","delay_ms":400}'
}
key=$(cat /proc/sys/kernel/random/uuid)
post >/dev/null &
for _ in $(seq 40); do
	curl -s "$CONTROL/charges?account=1" | grep -q '"ch_' && break
	sleep 0.05
done
curl -s -X POST "$CONTROL/kill"
echo "charges when the server was killed: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l)"
curl -s -X POST "$CONTROL/start"
began=$(date +%s)
answer=$(post)
while [ "${answer##* }" = 409 ] && [ $(($(date +%s) - began)) -lt 40 ]; do sleep 0.2; answer=$(post); done
echo "the same request again: $answer ($(($(date +%s) - began)) s after the start)"
echo "charges: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l), expected 1"
