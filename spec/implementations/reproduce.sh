# Shows by hand what the command found: sh reproduce.sh race, for example. The runner starts
# the server with a lifetime of one second for "expiry", and twice for "replica", and sets URL, SECOND_URL,
# CONTROL and KEY_HEADER.
key() { cat /proc/sys/kernel/random/uuid; }
key=$(key)
charge='{"amount":2500,"card":"visa"}'
slow='{"amount":2500,"card":"visa","delay_ms":400}' # charged after 400 ms, answered after 800 ms

post() { # BODY [CREDENTIAL [OPTION…]]
	body=$1 credential=${2:-one}
	shift $(($# < 2 ? $# : 2))
	curl -s -w ' %{http_code}\n' "$@" "$URL/charges" -H "Authorization: Bearer $credential" -H "$KEY_HEADER: $key" \
		-H 'Content-Type: application/json' -d "$body"
}
control() { curl -s -X POST "$CONTROL/$1"; }
charges() { curl -s "$CONTROL/charges?account=${1:-1}" | grep -o '"ch_[0-9]*"' | wc -l; }
expect() { echo "charges: $(charges), expected $1"; }
together() { # URL…
	for _ in $(seq 10); do
		key=$(key)
		curl -s -Z --parallel-immediate -w ' %{http_code}\n' -H 'Authorization: Bearer one' -H "$KEY_HEADER: $key" \
			-H 'Content-Type: application/json' -d "$charge" $(yes "$*" | head -n $((12 / $#))) 2>/dev/null
	done | grep -o '[0-9]*$' | sort | uniq -c | sed 's/^ */responses: /'
	expect 10
}

case $1 in
repeat) # the same request, twice
	echo "first: $(post "$charge")"
	echo "second: $(post "$charge")"
	expect 1 ;;
change) # a key is used for 2500, then for 3750
	for amount in 2500 3750; do echo "$amount: $(post "{\"amount\":$amount,\"card\":\"visa\"}")"; done
	echo "amounts: $(curl -s "$CONTROL/charges?account=1" | grep -o '"amount":[0-9]*' | tr '\n' ' ')"
	expect 1 ;;
type) # a key is used for 2500, then for "2500"
	for amount in 2500 '"2500"'; do echo "$amount: $(post "{\"amount\":$amount,\"card\":\"visa\"}")"; done
	expect 1 ;;
accounts) # two accounts send the same request with the same key
	for credential in one two; do echo "Bearer $credential: $(post "$charge" $credential)"; done
	for account in 1 2; do echo "charges of account $account: $(charges $account), expected 1"; done ;;
credential) # two credentials of one account do
	for credential in one uno; do echo "Bearer $credential: $(post "$charge" $credential)"; done
	expect 1 ;;
race) # for each of ten keys, twelve requests are sent at the same time
	together "$URL/charges" ;;
replica) # the same, half of them to each of two processes
	together "$URL/charges" "$SECOND_URL/charges" ;;
overlap) # a request that takes 800 ms is sent again after 200 ms
	post "$slow" & sleep 0.2
	post "$slow"
	wait
	expect 1 ;;
cut) # the client disconnects after 200 ms; the request is repeated at once, and after two seconds
	post "$slow" one --max-time 0.2 >/dev/null
	echo "at once: $(post "$slow")"
	sleep 2
	echo "after 2 s: $(post "$slow")"
	expect 1 ;;
outage) # the provider answers 503, then works again; a workflow may repeat its step for long, so the client waits 20 seconds
	control interrupt
	echo "during the outage: $(post "$charge" one -m 20)"
	control restore
	echo "after it: $(post "$charge" one -m 20)"
	sleep 2
	echo "2 seconds later: $(post "$charge" one -m 20)"
	expect 1 ;;
crash) # the server is killed when the charge is listed and started again; the request is repeated for 40 seconds while it gets 409
	post "$slow" >/dev/null &
	for _ in $(seq 40); do
		[ "$(charges)" -gt 0 ] && break
		sleep 0.05
	done
	control kill
	echo "charges when the server was killed: $(charges)"
	control start
	began=$(date +%s)
	answer=$(post "$slow")
	while [ "${answer##* }" = 409 ] && [ $(($(date +%s) - began)) -lt 40 ]; do sleep 0.2; answer=$(post "$slow"); done
	echo "the same request again: $answer ($(($(date +%s) - began)) s after the start)"
	expect 1 ;;
expiry) # the request is repeated after three seconds
	post "$charge"
	sleep 3
	post "$charge"
	expect 1 ;;
esac
