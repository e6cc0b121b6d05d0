package console

import (
	"fmt"
	"strings"

	"example.com/orders-api/client"
)

// unitAmount is the price of a tea, in cents.
const unitAmount = 1250

// quantity is how many teas an order of the page has.
const quantity = 2

// orderBody is the body of an order.
func orderBody(paymentMethod string, quantity int) []byte {
	return fmt.Appendf(nil, `{"email":"ada@example.com","currency":"usd","payment_method":%q,`+
		`"items":[{"sku":"tea","description":"Green tea","quantity":%d,"unit_amount":%d}]}`, paymentMethod, quantity, unitAmount)
}

// curl returns the command line that sends a request. API_KEY is a variable of the
// reader's shell.
func curl(base string, r client.Request) string {
	return fmt.Sprintf("curl -i %s \\\n  -H \"Authorization: Bearer $API_KEY\" \\\n  -H 'Content-Type: application/json' \\\n"+
		"  -H %s \\\n  -d %s", base+r.Path, quoted("Idempotency-Key: "+string(r.Key)), quoted(string(r.Body)))
}

// curlTwins returns the command line that sends a request n times at once.
func curlTwins(base string, r client.Request, n int) string {
	return fmt.Sprintf("for i in $(seq %d); do\n%s &\ndone; wait", n, curl(base, r))
}

// quoted returns text quoted for a shell.
func quoted(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
