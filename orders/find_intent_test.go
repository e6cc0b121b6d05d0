package orders_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

// createForeignIntents creates intents of other orders at the provider.
func (f *fixture) createForeignIntents(n int) {
	f.t.Helper()
	for i := range n {
		form := url.Values{"amount": {"100"}, "currency": {"usd"}, "metadata[order_id]": {"another-" + strconv.Itoa(i)}}
		req := httptest.NewRequest(http.MethodPost, "/v1/payment_intents", strings.NewReader(form.Encode()))
		req.Header.Set("Authorization", "Bearer sk_test_another_program")
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp := httptest.NewRecorder()
		f.stripe.ServeHTTP(resp, req)
		require.Equal(f.t, http.StatusOK, resp.Code)
	}
}

// The provider's list is longer than one step can read. The search continues in the next
// step of the same run.
func TestFindIntent_longList(t *testing.T) {
	t.Parallel()
	const pages = 30
	retry := func(f *fixture) string { return outcomeOf(f.create(visa)) }
	completer := func(f *fixture) string {
		f.ageLastRun(2 * grace)
		require.Equal(f.t, idempotency.CompleterResult{Completed: 1}, f.runCompleter())
		return outcomeOf(f.create(visa))
	}
	keysRetry := func(f *fixture) string { return outcomeOf(f.retry()) }
	keysResolve := func(f *fixture) string { return outcomeOf(f.resolve()) }
	const soon = 23*time.Hour + 30*time.Minute // the window is not over
	for name, test := range map[string]struct {
		run   func(*fixture) string
		fault stripetest.Fault // during the create
		age   time.Duration
		want  string
		calls string // after the list
	}{
		"retry":                           {retry, stripetest.CloseAfter, age, "422 charge_window_over", ", get 200, cancel 200"},
		"completer":                       {completer, stripetest.CloseAfter, age, "422 charge_window_over", ", get 200, cancel 200"},
		"completer, no intent":            {completer, stripetest.CloseBefore, age, "422 charge_window_over", ""},
		"completer, within window":        {completer, stripetest.CloseAfter, soon, "201", ", get 200, confirm 200"},
		"keys retry":                      {keysRetry, stripetest.CloseAfter, age, "422 charge_window_over", ", get 200, cancel 200"},
		"keys retry, no intent":           {keysRetry, stripetest.CloseBefore, age, "422 charge_window_over", ""},
		"keys retry, no intent in window": {keysRetry, stripetest.CloseBefore, soon, "201", ", create 200, get 200, confirm 200"},
		"keys resolve":                    {keysResolve, stripetest.CloseAfter, soon, "422 closed_by_operator", ", get 200, cancel 200"},
		"keys resolve, no intent":         {keysResolve, stripetest.CloseBefore, age, "422 closed_by_operator", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{stepTimeout: 2 * time.Second, clock: func() time.Time { return time.Now().Add(-test.age) }})
			require.Equal(t, "unavailable 1s", outcomeOf(f.createDuring(visa, always(test.fault, createEndpoint))))
			f.createForeignIntents(pages*100 - 1)
			if test.fault == stripetest.CloseBefore {
				f.createForeignIntents(1)
			}
			f.stripe.Advance(test.age)
			f.backdate(test.age)
			f.transport.reset()
			f.stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: listEndpoint, Delay: 100 * time.Millisecond, Times: stripetest.Always})

			require.Equal(t, test.want, test.run(f))
			require.Equal(t, fmt.Sprintf("list 200 ×%d", pages)+test.calls, f.transport.calls(), "each page is read once")
			f.checkFinal()
		})
	}
}

// The list is limited to the time in which the order's intent can have been created:
// none is created after the charge window.
func TestFindIntent_range(t *testing.T) {
	t.Parallel()
	const skew = 5 * time.Minute
	for name, test := range map[string]struct {
		age   time.Duration
		until time.Duration // after the order's creation
	}{
		"within the window": {23*time.Hour + 30*time.Minute, 23*time.Hour + 30*time.Minute + skew},
		"nine days old":     {9 * 24 * time.Hour, 24*time.Hour + skew},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{})
			f.interrupt(createEndpoint, visa)
			f.backdate(test.age)
			var mu sync.Mutex
			var query url.Values
			f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				if callName(req) == "list" {
					mu.Lock()
					defer mu.Unlock()
					query = req.URL.Query()
				}
				return next.RoundTrip(req)
			})
			_, err := f.create(visa)
			require.NoError(t, err)
			created := f.getOrder().CreatedAt.Time
			for member, want := range map[string]time.Time{"created[gte]": created.Add(-skew), "created[lte]": created.Add(test.until)} {
				seconds, err := strconv.ParseInt(query.Get(member), 10, 64)
				require.NoError(t, err, member)
				require.WithinDuration(t, want, time.Unix(seconds, 0), 30*time.Second, member)
			}
		})
	}
}
