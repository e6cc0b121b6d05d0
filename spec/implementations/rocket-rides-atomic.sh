# As reproduce.sh, for the requests of Rocket Rides.
key() { cat /proc/sys/kernel/random/uuid; }
key=$(key)

post() {
	curl -s -w ' %{http_code}\n' "$@" "$URL/rides" -H 'Authorization: one@example.com' -H "$KEY_HEADER: $key" \
		-d origin_lat=0.0 -d origin_lon=0.0 -d target_lat=1.0 -d target_lon=1.0
}
control() { curl -s -X POST "$CONTROL/$1"; }
charges() { curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l; }

case $1 in
race) # twelve requests with one key, sent at the same time, and one after them
	for _ in $(seq 12); do post -o /dev/null & done | sed 's/^ *//' | sort | uniq -c | sed 's/^ */responses: /'
	echo "after them: $(post -o /dev/null | sed 's/^ *//')" ;;
crash) # a request is charged after 150 ms and would be answered after 300 ms; the server is killed after 250 ms
	post >/dev/null & sleep 0.25
	control kill
	echo "charges when the server was killed: $(charges)"
	control start
	began=$(date +%s)
	answer=$(post)
	while [ "${answer##* }" = 409 ] && [ $(($(date +%s) - began)) -lt 60 ]; do sleep 0.2; answer=$(post); done
	echo "the same request again: $answer ($(($(date +%s) - began)) s after the start)" ;;
outage) # the provider answers 503, then works again; the request is then repeated, and sent with a new key
	control interrupt
	echo "during the outage: $(post)"
	control restore
	echo "after it: $(post)"
	sleep 2
	echo "2 seconds later: $(post)"
	key=$(key)
	echo "with a new key: $(post)" ;;
long) # a key of 100 characters is used twice, then one of 101
	key=$(printf '%0100d' 1)
	for time in first second; do echo "100 characters, $time: $(post)"; done
	key=$(printf '%0101d' 1)
	for time in first second; do echo "101 characters, $time: $(post)"; done ;;
esac
echo "charges: $(charges), expected 1"
