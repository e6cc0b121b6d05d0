case $1 in
accounts) # two test keys send the same request with the same key
	key=$(cat /proc/sys/kernel/random/uuid)
	for credential in sk_test_one sk_test_two; do
		echo "$credential: $(curl -s "$URL/v1/payment_intents" -H "Authorization: Bearer $credential" -H "Idempotency-Key: $key" \
			-d 'currency=usd&payment_method=pm_card_visa&confirm=true&automatic_payment_methods[enabled]=true&automatic_payment_methods[allow_redirects]=never&amount=2500' | grep -o '"id": *"pi_[A-Z0-9]*"' | head -n 1)"
	done
	;;
esac
