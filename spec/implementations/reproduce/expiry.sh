# The server was started with a lifetime of one second. The request is repeated after three.
key=$(cat /proc/sys/kernel/random/uuid)
for pause in 3 0; do
	echo "$(curl -s -w ' %{http_code}' "$URL/charges" -H 'Authorization: Bearer one' -H "$KEY_HEADER: $key" \
		-H 'Content-Type: application/json' -d '{"amount":2500,"card":"visa"}')"
	sleep "$pause"
done
echo "charges: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l), expected 1"
