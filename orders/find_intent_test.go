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
			f.ageLastRun(2 * time.Hour)
			require.Equal(f.t, idempotency.CompleterResult{Completed: 1}, f.runCompleter())
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{stepTimeout: slowStep, clock: func() time.Time { return time.Now().Add(-test.age) }})
			f.do(fault(test.lost, createIntent), create("503 unavailable, 1s"))
			f.createForeignIntents(pages*100 - len(f.intents()))
			f.Stripe.Advance(test.age)
			f.backdate(test.age)
			f.transport.reset()
			f.listSlowly()
			f.do(test.run, expectCalls(fmt.Sprintf("search 400, list 200 ×%d", pages)+test.calls))
			f.checkFinal()
		})
	}
}

// slowStep is longer than three slow pages, and half of it is shorter than five. On a busy machine,
// a page takes seconds more.
const slowStep = 12 * time.Second

func (f *fixture) listSlowly() {
	f.Stripe.Inject(stripetest.Rule{Fault: stripetest.NoSearch, Times: stripetest.Always})
	f.Stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: listIntents, Delay: slowStep / 8, Times: stripetest.Always})
}

// The window ends while old intents are listed. Now no create is sent, so newer ones count too.
func TestFindIntent_windowEnds(t *testing.T) {
	t.Parallel()
	const lost, old = 10 * time.Hour, 23*time.Hour + 30*time.Minute
	f := newFixture(t, options{
		stepTimeout:  slowStep,
		chargeWindow: lockTimeout + slowStep/3,
		clock:        func() time.Time { return time.Now().Add(-old) },
	})
	f.createForeignIntents(500)
	f.Stripe.Advance(old - lost)
	f.do(create("201"), loseRows)
	f.Stripe.Advance(lost)
	f.do(rateLimit(createIntent), retry("503 unavailable, 2s"))
	f.listSlowly()
	f.do(retry("201"), expectCharges(1))
	f.checkFinal()
}

func TestFindIntent_range(t *testing.T) {
	t.Parallel()
	const skew = time.Hour
	f := newFixture(t, options{})
	for key, test := range map[idempotency.Key]struct {
		age          time.Duration
		withSearch   bool
		since, until time.Duration // after the order's creation; 0 if there is no list
	}{
		"within-the-window":                     {23*time.Hour + 30*time.Minute, true, 22*time.Hour + 30*time.Minute, 23*time.Hour + 30*time.Minute},
		"within-the-window-without-search":      {23*time.Hour + 30*time.Minute, false, -24 * time.Hour, 23*time.Hour + 30*time.Minute},
		"nine-days-after-it":                    {9 * 24 * time.Hour, true, 0, 0},
		"nine-days-after-it-without-search":     {9 * 24 * time.Hour, false, -24 * time.Hour, 24 * time.Hour},
		"the-provider-key-works":                {time.Hour, true, 0, 0},
		"the-provider-key-works-without-search": {time.Hour, false, -24 * time.Hour, -23 * time.Hour},
	} {
		f := f.withKey(t, key)
		f.do(stopBefore(createIntent))
		f.backdate(test.age)
		if !test.withSearch {
			f.Stripe.Inject(stripetest.Rule{Fault: stripetest.NoSearch})
		}
		var query url.Values
		f.transport.intercept(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if callOf(req) == listIntents {
				query = req.URL.Query()
			}
			return next.RoundTrip(req)
		})
		_, err := f.create(visa)
		require.NoError(t, err)
		require.Equal(t, test.since != 0, query != nil, key)
		if query == nil {
			continue
		}
		created := f.getOrder().CreatedAt.Time
		for member, want := range map[string]time.Time{"created[gte]": created.Add(test.since - skew), "created[lte]": created.Add(test.until + skew)} {
			seconds, err := strconv.ParseInt(query.Get(member), 10, 64)
			require.NoError(t, err, member)
			require.WithinDuration(t, want, time.Unix(seconds, 0), 30*time.Second, "%s: %s", key, member)
		}
	}
}

func TestFindIntent_staleSearch(t *testing.T) {
	t.Parallel()
	f := newOldFixture(t, loseRequest(createIntent), create("503 unavailable, 1s"))
	charged := f.insertIntent(visa, orderAmount)
	f.insertIntent(visa, orderAmount)
	f.passDay()
	f.outOfBand("/v1/payment_intents/"+charged+"/confirm", nil)
	f.do(resolve("201"), expectCalls("search 200, get 200 ×3"), expectCharges(1))
	f.checkFinal()
}

func TestFindIntent_searchLags(t *testing.T) {
	t.Parallel()
	const old, recent = 23*time.Hour + 10*time.Minute, 10 * time.Minute
	f := newFixture(t, options{searchDelay: time.Hour, clock: func() time.Time { return time.Now().Add(-old - recent) }})
	f.do(stopBefore(createIntent), pass(old), loseResponse(createIntent), retry("503 unavailable, 1s"), pass(recent))
	f.transport.reset()
	f.do(retry("201"), expectCalls("search 200, list 200, get 200, confirm 200"), expectIntents("succeeded"))
	f.checkFinal()
}

// The search does not find a recent charge, whose time is of another clock than the order's.
func TestFindIntent_clocksDiffer(t *testing.T) {
	t.Parallel()
	const charged, recent = 23*time.Hour + 40*time.Minute, 25 * time.Minute
	for name, ahead := range map[string]time.Duration{"provider ahead": 55 * time.Minute, "provider behind": -55 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{searchDelay: time.Hour, clock: func() time.Time { return time.Now().Add(ahead - charged - recent) }})
			f.do(stopBefore(createIntent), pass(charged), rateLimit(confirm), retry("503 outcome unknown, 2s"), confirmAtProvider, loseIntent)
			f.do(pass(recent), retry("201"), expectCalls("search 200, list 200, get 200"), expectCharges(1))
			f.checkFinal()
		})
	}
}
