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

// The response that the completer stored differs from a direct one in ids and times only
// (R14).
func TestReplay_sameBytes(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]string{
		"unusual characters": unusualOrder(controlCharacters()+`Ünïcödé 漢字 👩‍🚀 </script>&'";-- \\ $1 %s`+"\u202e\ufffd\uffff\U0010ffff", "茶 \u2028\u2029 <b>&amp;'"),
		"needless escapes":   strings.ReplaceAll(unusualOrder("a/b", "tea"), "a/b", `\u0061\/\u0062\ud83d\ude00`),
		"64 KiB":             largestOrder("<"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			for card, status := range map[string]int{
				"pm_card_visa":                           http.StatusCreated,
				"pm_card_visa_chargeDeclined":            http.StatusPaymentRequired,
				"pppppppppp_" + strings.Repeat("n", 240): http.StatusUnprocessableEntity,
			} {
				body := strings.Replace(order, "pm_card_visa", card, 1)
				body += strings.Repeat(" ", 64<<10-len(body))
				key := newKey()
				direct := f.create(t, key, body)
				require.Equal(t, status, direct.status, "%s", direct.body)
				f.requireReplays(t, key, body, direct)

				key = newKey()
				f.interrupt(t, key, body)
				f.runCompleter(t)
				completed := f.create(t, key, body)
				require.Equal(t, withoutIDs(direct), withoutIDs(completed))
				require.Equal(t, "true", completed.header.Get("Idempotent-Replayed"))
				f.requireReplays(t, key, body, completed)
			}
		})
	}
}

func (f *fixture) requireReplays(t *testing.T, key, body string, first response) {
	t.Helper()
	var members map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &members))
	rewritten, err := json.MarshalIndent(members, "", "")
	require.NoError(t, err)
	// No operation defines a precondition, so a retry with one gets its response: its own first execution may be
	// what changed the state that the precondition names.
	for again, preconditions := range map[string][]requestEdit{body: nil, string(rewritten): {
		header("If-Match", `"another"`), header("If-None-Match", "*"), header("If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:00 GMT"),
	}} {
		if len(again) > 64<<10 {
			continue
		}
		got := f.create(t, key, again, preconditions...)
		require.Equal(t, first.status, got.status)
		require.Equal(t, string(first.body), string(got.body))
		require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
		for _, name := range []string{"Content-Type", "Content-Length", "Location"} {
			require.Equal(t, first.header[name], got.header[name], name)
		}
		require.NotEqual(t, first.header.Get("X-Request-Id"), got.header.Get("X-Request-Id"))
	}
	if first.status == http.StatusCreated {
		require.Equal(t, string(first.body), string(f.get(t, first.header.Get("Location")).body))
	}
}

func (f *fixture) interrupt(t *testing.T, key, body string) {
	t.Helper()
	down := f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Unavailable, Times: stripetest.Always})
	defer down.Release()
	require.Equal(t, http.StatusServiceUnavailable, f.create(t, key, body).status)
}

func (f *fixture) runCompleter(t *testing.T) {
	t.Helper()
	const grace = time.Hour
	completer := idempotency.NewCompleter(f.Engine,
		idempotency.CompleterConfig{Grace: grace, ActionTimeout: 23 * time.Hour, Batch: 40, Concurrency: 1})
	f.exec(t, "UPDATE idempotency_keys SET updated_at = updated_at - $1::interval", 2*grace)
	pass, err := completer.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, idempotency.CompleterResult{Completed: 1}, pass)
}

var idPattern = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|pi_[0-9A-Za-z]+|"\d{4}-\d\d-\d\dT[0-9:.]+Z"`)

func withoutIDs(got response) string { return idPattern.ReplaceAllString(string(got.body), "…") }

func controlCharacters() string {
	var b strings.Builder
	for c := range rune(' ') {
		b.WriteRune(c)
	}
	return b.String() + "\x7f"
}

func unusualOrder(note, description string) string {
	name := string([]rune(note)[:min(40, len([]rune(note)))])
	return orderBody(withMember("metadata", map[string]string{name: note}), withMember("items", []orders.Item{
		{SKU: "tea", Description: description, Quantity: 2, UnitAmount: 1250},
	}))
}

func largestOrder(character string) string {
	items := []orders.Item{{SKU: strings.Repeat("s", 64), Quantity: 1, UnitAmount: 99}}
	longest := orders.Item{SKU: "tea", Description: strings.Repeat(character, 500), Quantity: 1, UnitAmount: 1}
	for left := 16<<10 - 64; left >= len(longest.SKU+longest.Description); left -= len(longest.SKU + longest.Description) {
		items = append(items, longest)
	}
	order := orderBody(withMember("metadata", map[string]string{}), withMember("items", items), withMember("email", "ad@"+strings.Repeat("d.", 124)+"com"))
	return strings.ReplaceAll(order, `\u003c`, "<")
}
