package orders_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// A fix that fails says so and leaves the difference.
func TestReconcile_fixFails(t *testing.T) {
	t.Parallel()
	leftBehind := func(s *shop) { s.plant(visa, nil) }
	stuck := func(s *shop) { s.stopAt(confirmEndpoint, visa) }
	for name, test := range map[string]struct {
		plant    func(*shop)
		fault    stripetest.Fault
		endpoint string
		around   func(*shop) around
		fix      string
		fixed    bool
		calls    string
	}{
		"the provider is down for the cancel": {
			plant: leftBehind, fault: stripetest.Unavailable, endpoint: cancelEndpoint,
			fix:   "not cancelled: payments: unknown, status 503: unreadable answer",
			calls: "list 200, get 200, cancel 503 ×3",
		},
		"it keeps a 500 under every key": {
			plant: leftBehind, fault: stripetest.ErrorBefore, endpoint: cancelEndpoint,
			fix:   "not cancelled: payments: unknown, status 500, type api_error, request ID",
			calls: "list 200, get 200, cancel 500, get 200, cancel-2 500, get 200, cancel-3 500, get 200",
		},
		"it cancels, and keeps a 500": {
			plant: leftBehind, fault: stripetest.ErrorAfter, endpoint: cancelEndpoint, fixed: true,
			fix:   "cancelled",
			calls: "list 200, get 200, cancel 500, get 200",
		},
		"it says that it cancelled, and did not": {
			plant: leftBehind, around: changing("cancel", `"status": "canceled"`, `"status": "processing"`),
			fix:   "not cancelled: the intent is processing",
			calls: "list 200, get 200, cancel 200",
		},
		"the intent cannot be read any more": {
			plant: leftBehind, fault: stripetest.Unavailable, endpoint: getEndpoint,
			fix:   "ask the provider for ID: payments: unknown, status 503: unreadable answer",
			calls: "list 200, get 503 ×3",
		},
		"the client of a lost order comes back": {
			plant: func(s *shop) {
				s.stopAt(confirmEndpoint, visa)
				s.lose()
			},
			around: beforehand("get", func(s *shop) {
				s.wire.put(nil)
				require.Equal(s.t, "201", say(s.buy(visa)))
			}),
			fix:   "not cancelled: it has moved meanwhile",
			calls: "list 200, create 200, confirm 200, get 200",
		},
		"the provider is down for the run": {
			plant: stuck, fault: stripetest.Unavailable, endpoint: getEndpoint,
			fix:   "resumed without an outcome: the outcome of the payment is not known yet: payments: unknown, status 503: unreadable answer",
			calls: "list 200, get 503 ×3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openAnHourAgo(t, terms{})
			test.plant(s)
			s.anHourLater()
			if test.fault != "" {
				s.inject(test.fault, test.endpoint)
			}
			if test.around != nil {
				s.wire.put(test.around(s))
			}
			report := s.reconcile(true)
			require.Len(t, report.Differences, 1)
			require.Equal(t, test.fix, anyID.ReplaceAllString(report.Differences[0].Fix, "ID"))
			require.Equal(t, test.fixed, report.Differences[0].Fixed)
			require.Equal(t, test.fixed, report.Open() == 0)
			require.Equal(t, test.calls, s.wire.said())
			require.Empty(t, s.stripe.OrdersChargedTwice())
		})
	}
}

// A run that began since the keys were listed goes on undisturbed.
func TestReconcile_fixMeetsARun(t *testing.T) {
	t.Parallel()
	s := openAnHourAgo(t, terms{})
	s.stopAt(confirmEndpoint, visa)
	s.with(t, "an-order-that-is-lost").plant(visa, nil)
	s.anHourLater()
	s.wire.put(beforehand("cancel", func(s *shop) { s.lease(0) })(s))
	require.Equal(t, []string{
		stuckAt("charge_created") + " =/=> resumed without an outcome: a request with this idempotency key is in progress",
		"intent_left_behind: intent requires_confirmation, no such order => cancelled",
	}, found(s.reconcile(true)))
	require.Equal(t, "list 200, get 200, cancel 200", s.wire.said())
}
