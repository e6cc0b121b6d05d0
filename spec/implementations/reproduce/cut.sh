# The client disconnects after 200 ms. The request would be charged after 400 ms and answered
# after 800 ms. It is repeated at once, and after two seconds.
post() {
	curl -s -w ' %{http_code}\n' "$@" "$URL/charges" -H 'Authorization: Bearer one' -H "$KEY_HEADER: $key" \
		-H 'Content-Type: application/json' -d '{"amount":2500,"card":"visa","delay_ms":400}'
}
key=$(cat /proc/sys/kernel/random/uuid)
post --max-time 0.2 >/dev/null
echo "at once: $(post)"
sleep 2
echo "after 2 s: $(post)"
echo "charges: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l), expected 1"
