package api_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

// Whatever legal text an order holds, its answer is the same bytes each time,
// and the same as if nothing had gone wrong when the completer made it.
func TestReplaysAreTheSameBytes(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]string{
		"every control character":           oddOrder(controls(), "tea"),
		"no character of ASCII":             oddOrder("Ünïcödé 漢字 👩‍🚀 \u202e \ufffd \uffff \U0010ffff", "茶 \u2028\u2029"),
		"escapes without need":              strings.ReplaceAll(oddOrder("a/b", "tea"), "a/b", `\u0061\/\u0062\ud83d\ude00`),
		"what HTML and SQL would eat":       oddOrder(`</script>&'";-- \\ $1 %s`, `<b>&amp;'`),
		"64 KiB of four-byte letters":       largest("😀"),
		"64 KiB of what the answer escapes": largest("<"),
		"64 KiB of NUL in the notes":        largest("\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := start(t)
			for card, status := range map[string]int{
				"pm_card_visa":                http.StatusCreated,
				"pm_card_visa_chargeDeclined": http.StatusPaymentRequired,
				"pm_card_nobody":              http.StatusUnprocessableEntity,
			} {
				body := fill(t, strings.Replace(order, "pm_card_visa", card, 1))
				key := newKey()
				direct := a.create(t, key, body)
				require.Equal(t, status, direct.status, "%s", direct.body)
				a.requireReplays(t, key, body, direct)

				key = newKey()
				a.abandon(t, key, body)
				a.complete(t)
				completed := a.create(t, key, body)
				require.Equal(t, unnamed(direct), unnamed(completed))
				require.Equal(t, "true", completed.header.Get("Idempotent-Replayed"))
				a.requireReplays(t, key, body, completed)
			}
		})
	}
}

// requireReplays says that a key's answer is what it was, for the same request
// written in another way, too.
func (a *app) requireReplays(t *testing.T, key, body string, first answer) {
	t.Helper()
	var members map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &members))
	rewritten, err := json.MarshalIndent(members, "", "")
	require.NoError(t, err)
	for _, again := range []string{body, string(rewritten)} {
		if len(again) > 64<<10 {
			continue // the other way is longer than a body may be
		}
		got := a.create(t, key, again)
		require.Equal(t, first.status, got.status)
		require.Equal(t, string(first.body), string(got.body))
		require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
		for _, name := range []string{"Content-Type", "Content-Length", "Location"} {
			require.Equal(t, first.header[name], got.header[name], name)
		}
	}
	if first.status == http.StatusCreated {
		require.Equal(t, string(first.body), string(a.get(t, first.header.Get("Location")).body))
	}
}

// abandon leaves a key that nobody finished, whose client has gone.
func (a *app) abandon(t *testing.T, key, body string) {
	t.Helper()
	down := a.stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Times: stripetest.Always})
	defer down.Release()
	require.Equal(t, http.StatusServiceUnavailable, a.create(t, key, body).status)
}

// complete makes one pass of the completer, in which it finishes one key.
func (a *app) complete(t *testing.T) {
	t.Helper()
	const grace = time.Hour
	completer, err := idempotency.NewCompleter(a.engine, a.service.Operation,
		idempotency.CompleterConfig{Grace: grace, MaxAttempts: 1, Limit: 10, Concurrency: 1})
	require.NoError(t, err)
	a.exec(t, "UPDATE idempotency_keys SET last_run_at = last_run_at - $1::interval", 2*grace)
	pass, err := completer.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, pass)
}

// names are what differs between two orders alike.
var names = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|pi_[0-9A-Za-z]+|"\d{4}-\d\d-\d\dT[0-9:.]+Z"`)

func unnamed(got answer) string { return names.ReplaceAllString(string(got.body), "…") }

// controls is every character below the blank, and DEL.
func controls() string {
	var b strings.Builder
	for c := range rune(' ') {
		b.WriteRune(c)
	}
	return b.String() + "\x7f"
}

// oddOrder is an order with a note, under a name as odd, and a description.
func oddOrder(note, description string) string {
	name := string([]rune(note)[:min(40, len([]rune(note)))])
	return body(with("metadata", map[string]string{name: note}), with("items", []orders.Item{
		{SKU: "tea", Description: description, Quantity: 2, UnitAmount: 1250},
	}))
}

// largest is an order with as many bytes of one character as fit in.
func largest(character string) string {
	notes := map[string]string{}
	items := []orders.Item{}
	var order string
	for n := 0; len(order) < 60_000; n++ {
		if n < 20 {
			notes[character+string(rune('a'+n))] = strings.Repeat(character, 500)
		} else {
			items = append(items, orders.Item{SKU: "tea", Description: strings.Repeat(character, 500), Quantity: 1, UnitAmount: 1})
		}
		order = body(with("metadata", notes), with("items", append(items, orders.Item{SKU: "tea", Quantity: 1, UnitAmount: 99})))
		order = strings.ReplaceAll(order, `\u003c`, "<") // six times as much in the answer
	}
	return order
}

// fill makes a body as long as one may be.
func fill(t *testing.T, body string) string {
	t.Helper()
	rest := 64<<10 - len(body)
	require.GreaterOrEqual(t, rest, 0)
	return body + strings.Repeat(" ", rest)
}
