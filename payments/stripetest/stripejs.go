package stripetest

import (
	_ "embed"
	"net/http"
)

//go:embed stripe.js
var stripeJS []byte

// serveStripeJS serves a fake of https://js.stripe.com/v3/, for pages that collect cards.
func serveStripeJS(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(stripeJS) // fails only if the browser is gone
}
