package orders_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/orders/reconcile"
)

// No clock moves the place in the list ahead of what was read, so no dispute is skipped (R8).
func TestChanges_wrongClocks(t *testing.T) {
	t.Parallel()
	const wrong = 48 * time.Hour
	date := func(ahead time.Duration) step {
		return interceptFirst(listEvents, func(_ *fixture, req *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil {
				resp.Header.Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
			}
			return resp, err
		})
	}
	for name, test := range map[string]struct {
		date     time.Duration // of one response
		warnings int
		unread   time.Duration // as the alert sees it
	}{
		"a response's clock is ahead": {wrong, 1, 0},
		"a response's clock is late":  {-wrong, 1, wrong},
		"both clocks were ahead":      {0, 0, time.Hour}, // since the account was created
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{}, createPaid(visa))
			f.exec("UPDATE accounts SET created_at = created_at - interval '1 hour'")
			unread := func() time.Duration {
				unread, err := reconcile.Unread(t.Context(), f.Pool)
				require.NoError(t, err)
				return unread
			}
			f.do(date(test.date), readEvents)
			if test.date == 0 {
				f.exec("UPDATE provider_event_place SET read_until = now() + $1::interval", wrong)
			}
			require.Equal(t, test.warnings, f.log.count("level=WARN msg=\"the provider's clock"))
			require.InDelta(t, test.unread.Seconds(), unread().Seconds(), 60)
			f.do(dispute(700, "lost"), readEvents)
			require.Equal(t, "paid 0: ; lost 700", f.changes())
			require.InDelta(t, 0, unread().Seconds(), 60)
			checkChanges(t, f)
		})
	}
}
