package livecheck

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"example.com/orders-api/payments/stripetest"
)

// permissions are those of the client's calls. Stripe checks a permission before the parameters, so a
// POST without parameters shows it and creates nothing.
var permissions = []struct {
	name, method, path string
	without            string // what an account or a key without it means; "" if the program cannot work
}{
	{"read PaymentIntents", http.MethodGet, "/v1/payment_intents?limit=1", ""},
	{"write PaymentIntents", http.MethodPost, "/v1/payment_intents", ""},
	{"read Refunds", http.MethodGet, "/v1/refunds?limit=1", ""},
	{"write Refunds", http.MethodPost, "/v1/refunds", ""},
	{"search PaymentIntents", http.MethodGet, "/v1/payment_intents/search?query=metadata%5B%27order_id%27%5D%3A%27stripe-check%27", "reconcile and completer use lists instead"},
	{"read Events", http.MethodGet, "/v1/events?limit=1", "refunds and disputes that are made at Stripe are learnt from webhooks only"},
	{"read Disputes", http.MethodGet, "/v1/disputes?limit=1", "what changes after a response is not recorded"},
}

// report prints what the account and the key allow, and reports whether the checks can run.
func (c comparison) report(ctx context.Context, client *http.Client) (ready bool) {
	start := time.Now()
	c.printf("%-23s%s, test mode\n", "provider", cmp.Or(c.url, stripe.APIURL))
	if !c.reportAccount(ctx, client) {
		return false
	}
	ready = true
	for _, p := range permissions {
		answer, err := c.ask(ctx, client, p.method, p.path)
		switch {
		case err != nil:
			c.printf("%-23sno answer: %v\n", p.name, err)
			return false
		case answer.status == http.StatusOK, answer.status == http.StatusBadRequest && p.method == http.MethodPost:
			c.printf("%-23syes\n", p.name)
		case p.without != "":
			c.printf("%-23sno (%s): %s\n", p.name, answer.refusal(), p.without)
		default:
			c.printf("%-23sno (%s): the program needs it\n", p.name, answer.refusal())
			ready = false
		}
	}
	if err := c.reportWebhooks(ctx, client); err != nil {
		c.printf("%-23sno answer: %v\n", "webhook endpoints", err)
		return false
	}
	c.printf("%-23s%v\n\n", "this report took", time.Since(start).Round(100*time.Millisecond))
	return ready
}

func (c comparison) reportAccount(ctx context.Context, client *http.Client) (accepted bool) {
	sent := time.Now()
	answer, err := c.ask(ctx, client, http.MethodGet, "/v1/account")
	received := time.Now()
	if err != nil {
		c.printf("%-23sno answer: %v\n", "account", err)
		return false
	}
	if answer.status == http.StatusUnauthorized {
		c.printf("%-23sthe key was rejected (401)\n", "account")
		return false
	}
	var account struct {
		ID             string `json:"id"`
		Country        string `json:"country"`
		ChargesEnabled bool   `json:"charges_enabled"`
	}
	if answer.status != http.StatusOK || json.Unmarshal(answer.body, &account) != nil || account.ID == "" {
		c.printf("%-23snot readable with this key (%s), which it need not be\n", "account", answer.refusal())
	} else {
		c.printf("%-23s%s, %s\n", "account", account.ID, account.Country)
		if !account.ChargesEnabled {
			c.printf("%-23sno: test mode works, live mode only after its activation\n", "activated")
		}
		if account.Country == "IN" {
			c.printf("%-23sIndia: a buyer abroad needs a name and an address, which the program never sends\n", "country")
		}
	}
	c.printf("%-23s%s, for requests of %s\n", "API version", cmp.Or(answer.header.Get("Stripe-Version"), "not stated"), stripe.APIVersion)
	at, err := http.ParseTime(answer.header.Get("Date")) // whole seconds
	switch {
	case err != nil:
		c.printf("%-23sthe response has no Date\n", "clock")
	case at.Before(sent.Add(-2*time.Second)) || at.After(received.Add(2*time.Second)):
		c.printf("%-23sdiffers from the provider's by %v\n", "clock", at.Sub(sent).Round(time.Second))
	default:
		c.printf("%-23sas the provider's, within 2 s\n", "clock")
	}
	return true
}

func (c comparison) reportWebhooks(ctx context.Context, client *http.Client) error {
	answer, err := c.ask(ctx, client, http.MethodGet, "/v1/webhook_endpoints?limit=100")
	if err != nil {
		return err
	}
	var endpoints struct {
		Data []struct {
			URL        string `json:"url"`
			Status     string `json:"status"`
			APIVersion string `json:"api_version"`
		} `json:"data"`
	}
	if answer.status != http.StatusOK || json.Unmarshal(answer.body, &endpoints) != nil {
		c.printf("%-23snot readable with this key (%s), which they need not be\n", "webhook endpoints", answer.refusal())
		return nil
	}
	if len(endpoints.Data) == 0 {
		c.printf("%-23snone: events are read from the list, a minute later\n", "webhook endpoints")
	}
	for _, e := range endpoints.Data {
		c.printf("%-23s%s, %s, API version %s\n", "webhook endpoint", e.URL, e.Status, cmp.Or(e.APIVersion, "of the account"))
	}
	return nil
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

// refusal has no text of the provider, which can quote a key.
func (a answer) refusal() string {
	var refused struct {
		Error struct {
			Type string `json:"type"`
			Code string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(a.body, &refused)
	return strings.Join(strings.Fields(fmt.Sprint(a.status, " ", refused.Error.Type, " ", refused.Error.Code)), " ")
}

// ask repeats a request after a 429.
func (c comparison) ask(ctx context.Context, client *http.Client, method, path string) (a answer, err error) {
	for range 5 {
		r, err := http.NewRequestWithContext(ctx, method, cmp.Or(c.url, stripe.APIURL)+path, http.NoBody)
		if err != nil {
			return a, errors.New("the address is invalid")
		}
		r.Header.Set("Authorization", "Bearer "+c.key)
		r.Header.Set("Stripe-Version", stripe.APIVersion)
		resp, err := client.Do(r)
		if err != nil {
			return a, errors.New("no response")
		}
		a = answer{status: resp.StatusCode, header: resp.Header}
		a.body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		_ = resp.Body.Close()
		if err != nil || a.status != http.StatusTooManyRequests {
			return a, err
		}
		select {
		case <-time.After(10 * c.pace):
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
	return a, nil
}

// creations counts what a table of checks creates at the provider.
func creations(table []check) (intents, refunds int) {
	for _, check := range table {
		for _, step := range check.steps {
			switch {
			case !strings.HasPrefix(step.want.response, ok) || strings.HasPrefix(step.want.headers, "Idempotent-Replayed"):
			case strings.HasPrefix(step.call.name, "create "):
				intents++
			case step.call.name == "refund":
				refunds++
			}
		}
	}
	return intents, refunds
}

func TestReport(t *testing.T) {
	t.Parallel()
	const account = `{"object": "account", "id": "acct_1", "country": "%s", "charges_enabled": %t}`
	forbidden := func(path, method string) func(*http.Request) (int, string) {
		return func(r *http.Request) (int, string) {
			if r.URL.Path != path || r.Method != method {
				return 0, ""
			}
			return http.StatusForbidden, `{"error": {"type": "invalid_request_error", "message": "The provided key 'rk_test_canary' lacks it."}}`
		}
	}
	returns := func(path string, status int, body string) func(*http.Request) (int, string) {
		return func(r *http.Request) (int, string) {
			if r.URL.Path != path {
				return 0, ""
			}
			return status, body
		}
	}
	for name, test := range map[string]struct {
		answer func(*http.Request) (status int, body string) // 0: the fake answers
		status int
		lines  []string
	}{
		"all permissions": {
			func(*http.Request) (int, string) { return 0, "" }, exitSame,
			[]string{"account                acct_fake, US\n", "clock                  as the provider's", "write Refunds          yes", "read Events            yes"},
		},
		"not activated": {returns("/v1/account", 200, fmt.Sprintf(account, "DE", false)), exitSame, []string{"acct_1, DE", "activated              no: test mode works"}},
		"in India":      {returns("/v1/account", 200, fmt.Sprintf(account, "IN", true)), exitSame, []string{"India: a buyer abroad needs a name"}},
		"no account":    {forbidden("/v1/account", http.MethodGet), exitSame, []string{"account                not readable with this key (403 invalid_request_error), which it need not be"}},
		"no events":     {forbidden("/v1/events", http.MethodGet), exitSame, []string{"read Events            no (403 invalid_request_error): refunds and disputes"}},
		"no search":     {returns("/v1/payment_intents/search", 400, `{"error": {"type": "invalid_request_error"}}`), exitDifferent, []string{"search PaymentIntents  no (400 invalid_request_error): reconcile"}},
		"no write":      {forbidden("/v1/refunds", http.MethodPost), exitNotCompared, []string{"write Refunds          no (403 invalid_request_error): the program needs it", "Nothing was created"}},
		"wrong key":     {returns("/v1/account", 401, `{"error": {"type": "invalid_request_error"}}`), exitNotCompared, []string{"the key was rejected (401)", "Nothing was created"}},
		"endpoints": {
			returns("/v1/webhook_endpoints", 200, `{"object": "list", "data": [{"url": "https://shop.example/v1/webhooks/stripe", "status": "enabled", "api_version": "2020-08-27"}]}`),
			exitSame,
			[]string{"webhook endpoint       https://shop.example/v1/webhooks/stripe, enabled, API version 2020-08-27"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := newFake()
			status, report := compare(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if status, body := test.answer(r); status != 0 {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, body)
					return
				}
				fake.ServeHTTP(w, r)
			}))
			require.Equal(t, test.status, status, report)
			require.NotContains(t, report, "canary")
			for _, line := range test.lines {
				require.Contains(t, report, line)
			}
			if test.status == exitNotCompared {
				require.Empty(t, fake.Charges())
				require.NotContains(t, report, "same ")
			}
		})
	}
}

func TestReport_clock(t *testing.T) {
	t.Parallel()
	ahead := func() time.Time { return time.Now().Add(time.Hour) }
	_, report := compare(t, stripetest.New(stripetest.Options{Clock: ahead, SearchDelay: -1}))
	require.Regexp(t, `clock +differs from the provider's by (1h0m0s|59m59s)`, report)
}
