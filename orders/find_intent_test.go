package orders_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

func (f *fixture) createForeignIntents(n int) {
	f.t.Helper()
	for i := range n {
		f.outOfBand("/v1/payment_intents", url.Values{"amount": {"100"}, "currency": {"usd"}, "metadata[order_id]": {"another-" + strconv.Itoa(i)}})
	}
}

// The provider's list is longer than one step can read. The search continues in the next
// step of the same run.
func TestFindIntent_longList(t *testing.T) {
	t.Parallel()
	const pages = 5
	for name, test := range map[string]struct {
		lost  stripetest.Fault // of the create
		age   time.Duration
		run   step
		calls string // after the list
	}{
		"retry after the window": {stripetest.CloseAfter, age, retry("422 charge_window_over"), ", get 200, cancel 200"},
		"completer, no intent": {stripetest.CloseBefore, age, func(f *fixture) {
			f.ageLastRun(2 * grace)
			require.Equal(f.t, idempotency.CompleterResult{Completed: 1}, f.runCompleter())
		}, ""},
		"retry within the window, no intent": {stripetest.CloseBefore, 23*time.Hour + 30*time.Minute, retry("201"), ", create 200, get 200, confirm 200"},
		"keys resolve":                       {stripetest.CloseAfter, age, resolve("422 closed_by_operator"), ", get 200, cancel 200"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{stepTimeout: time.Second, clock: func() time.Time { return time.Now().Add(-test.age) }})
			f.do(fault(test.lost, createIntent), create("503 unavailable, 1s"))
			f.createForeignIntents(pages*100 - len(f.intents()))
			f.stripe.Advance(test.age)
			f.backdate(test.age)
			f.transport.reset()
			f.stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: listIntents, Delay: 150 * time.Millisecond, Times: stripetest.Always})
			f.do(test.run, expectCalls(fmt.Sprintf("list 200 ×%d", pages)+test.calls))
			f.checkFinal()
		})
	}
}

// The list ends with the charge window, because no intent is created after it.
func TestFindIntent_range(t *testing.T) {
	t.Parallel()
	const skew = 5 * time.Minute
	f := newFixture(t, options{})
	for key, test := range map[idempotency.Key]struct {
		age   time.Duration
		until time.Duration // after the order's creation
	}{
		"within-the-window":  {23*time.Hour + 30*time.Minute, 23*time.Hour + 30*time.Minute + skew},
		"nine-days-after-it": {9 * 24 * time.Hour, 24*time.Hour + skew},
	} {
		f := f.withKey(t, key)
		f.do(stopBefore(createIntent))
		f.backdate(test.age)
		var query url.Values
		f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if callOf(req) == listIntents {
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
	}
}
