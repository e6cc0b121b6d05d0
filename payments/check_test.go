package payments_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rule     stripetest.Rule
		rejected bool
		text     string // of the error
	}{
		"wrong key":              {stripetest.Rule{Fault: stripetest.Unauthorized}, true, "status 401"},
		"no permission, intents": {stripetest.Rule{Fault: stripetest.Forbidden, Endpoint: "GET /v1/payment_intents"}, true, "read PaymentIntents: payments: not_executed, status 403"},
		"no permission, refunds": {stripetest.Rule{Fault: stripetest.Forbidden, Endpoint: "GET /v1/refunds"}, true, "read Refunds: payments: not_executed, status 403"},
		"rate limit":             {stripetest.Rule{Fault: stripetest.RateLimit}, false, "status 429"},
		"proxy":                  {stripetest.Rule{Fault: stripetest.Unavailable}, false, "status 503"},
		"no response":            {stripetest.Rule{Fault: stripetest.CloseBefore}, false, "no response"},
		"hangs":                  {stripetest.Rule{Fault: stripetest.HoldArrival}, false, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := stripetest.New(stripetest.Options{})
			server := httptest.NewServer(fake)
			t.Cleanup(server.Close)
			t.Cleanup(fake.Close)
			test.rule.Times = stripetest.Always
			fake.Inject(test.rule)
			client := newClient(t, payments.NewTransport(), at(server.URL))
			ctx := t.Context()
			if name == "hangs" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
			}
			rejected, err := client.Check(ctx)
			_ = failure(t, err)
			require.ErrorContains(t, err, test.text)
			require.Equal(t, test.rejected, rejected)
		})
	}
}

func TestLacks(t *testing.T) {
	t.Parallel()
	const events, disputes = "grant the key Read for Events", "grant the key Read for Disputes"
	const intents, refunds = "grant the key Write for PaymentIntents", "grant the key Write for Refunds"
	account := func(country string, activated bool) string {
		return fmt.Sprintf(`{"object": "account", "id": "acct_1", "country": %q, "charges_enabled": %t}`, country, activated)
	}
	forbidden := `{"error": {"type": "invalid_request_error", "message": "The provided key does not have the required permissions."}}`
	missing := `{"error": {"type": "invalid_request_error", "code": "parameter_missing", "message": "Missing required param: amount."}}`
	for name, test := range map[string]struct {
		key     string
		answers map[string]string // by path, or by POST and path; another list is empty
		lacks   []string
	}{
		"complete":            {"sk_live_1", map[string]string{"/v1/account": account("US", true)}, nil},
		"restricted":          {"rk_live_1", map[string]string{"/v1/account": forbidden, "/v1/events": forbidden, "/v1/disputes": forbidden}, []string{events, disputes}},
		"without write":       {"rk_test_1", map[string]string{"POST /v1/payment_intents": forbidden, "POST /v1/refunds": forbidden}, []string{intents, refunds}},
		"not activated":       {"sk_live_1", map[string]string{"/v1/account": account("US", false)}, []string{"activate the account"}},
		"not activated, test": {"sk_test_1", map[string]string{"/v1/account": account("US", false)}, nil},
		"in India":            {"sk_test_1", map[string]string{"/v1/account": account("IN", false)}, []string{"an Indian account"}},
		"not an account":      {"sk_live_1", map[string]string{"/v1/account": `{"object": "list", "data": []}`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := cmp.Or(test.answers[r.URL.Path], `{"object": "list", "has_more": false, "data": []}`)
				if r.Method == http.MethodPost {
					body, _ := io.ReadAll(r.Body)
					if len(body) > 0 || !strings.HasPrefix(test.key, "rk_") {
						t.Errorf("%s %s %q with the key %s", r.Method, r.URL, body, test.key)
					}
					answer = cmp.Or(test.answers["POST "+r.URL.Path], missing)
				}
				switch answer {
				case forbidden:
					w.WriteHeader(http.StatusForbidden)
				case missing:
					w.WriteHeader(http.StatusBadRequest)
				}
				_, _ = io.WriteString(w, answer)
			}))
			t.Cleanup(server.Close)
			lacks := newClient(t, payments.NewTransport(), at(server.URL), func(c *payments.Config) { c.SecretKey = test.key }).Lacks(t.Context())
			require.Len(t, lacks, len(test.lacks))
			for i, lack := range test.lacks {
				require.Contains(t, lacks[i], lack)
			}
		})
	}
}
