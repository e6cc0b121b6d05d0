# A request that takes 800 ms is sent again after 200 ms.
post() {
	curl -s -w ' %{http_code}\n' "$URL/charges" -H 'Authorization: Bearer one' -H "$KEY_HEADER: $key" \
		-H 'Content-Type: application/json' -d '{"amount":2500,"card":"visa","delay_ms":400}'
}
key=$(cat /proc/sys/kernel/random/uuid)
post & sleep 0.2
post
wait
echo "charges: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l), expected 1"
