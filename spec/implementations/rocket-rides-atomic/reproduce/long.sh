# A key of 100 characters is used twice, then one of 101.
post() {
	curl -s -w ' %{http_code}\n' "$URL/rides" -H 'Authorization: one@example.com' -H "$KEY_HEADER: $key" \
		-d origin_lat=0.0 -d origin_lon=0.0 -d target_lat=1.0 -d target_lon=1.0
}
key=$(printf '%0100d' 1)
for time in first second; do echo "100 characters, $time: $(post)"; done
key=$(printf '%0101d' 1)
for time in first second; do echo "101 characters, $time: $(post)"; done
echo "charges: $(curl -s "$CONTROL/charges?account=1" | grep -o '"ch_[0-9]*"' | wc -l), expected 1"
