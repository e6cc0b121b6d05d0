package devservices

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"example.com/orders-api/cmd/internal/setup"
)

// BaseURL returns the URL of a listener for a client on this machine.
func BaseURL(address net.Addr) string {
	host, port, _ := net.SplitHostPort(address.String())
	if net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Welcome is what orders dev prints when it is ready.
type Welcome struct {
	Services   *Services
	Stripe     setup.Stripe
	Checked    string // the result of a call to Stripe, without the fake
	BaseURL    string
	DocsURL    string
	APIKey     string
	ConsoleURL string
}

// Print writes once, so that no log line interrupts the text.
func (w Welcome) Print(out io.Writer) {
	var text strings.Builder
	fmt.Fprintf(&text, "\nOrders API   %s   contract: %s\n", w.BaseURL, w.DocsURL)
	fmt.Fprintf(&text, "Console      %s   cause a failure, and see the recovery\n", w.ConsoleURL)
	if w.Services.Postgres != nil {
		fmt.Fprintf(&text, "PostgreSQL   psql '%s'\n", w.Services.Postgres.URL("postgres"))
	}
	if w.Services.Stripe != nil {
		kind := "a fake"
		if w.Services.webhookSecret != "" {
			kind += " that sends webhooks"
		}
		fmt.Fprintf(&text, "Stripe       %s; its charges: %s\n", kind, w.Stripe.APIBase)
	} else {
		fmt.Fprintf(&text, "Stripe       %s\n", w.Checked)
	}
	if w.Services.Stripe == nil && w.Stripe.WebhookSecret == "" {
		fmt.Fprintf(&text, "Webhooks     off; set STRIPE_WEBHOOK_SECRET to the secret that this command prints:\n"+
			"             stripe listen --forward-to %s/v1/webhooks/stripe\n", w.BaseURL)
	}
	if w.Services.DataDir != "" {
		fmt.Fprintf(&text, "Data         %s   orders dev --reset deletes it\n", w.Services.DataDir)
	}
	fmt.Fprintf(&text, "API key      %s\n\nCreate an order:\n\n%s\n\n"+
		"Send the same line again: the same bytes come back, and nothing is charged twice.\n\n", w.APIKey, w.curl())
	_, _ = io.WriteString(out, text.String())
}

// curl has an idempotency key that is new after each start, so that the user sees a first
// response and a replay.
func (w Welcome) curl() string {
	return fmt.Sprintf(`  curl -i %s/v1/orders -H 'Authorization: Bearer %s' \
    -H 'Content-Type: application/json' -H 'Idempotency-Key: my-order-%s' \
    -d '{"email":"ada@example.com","currency":"usd","payment_method":"pm_card_visa",
         "items":[{"sku":"tea","description":"Green tea","quantity":2,"unit_amount":1250}]}'`,
		w.BaseURL, w.APIKey, time.Now().Format("20060102-150405"))
}
