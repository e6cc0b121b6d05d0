package orders_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/orders"
	"example.com/orders-api/payments/stripetest"
)

// outcome is something that a provider can do to an order.
type outcome struct {
	name    string
	card    string             // pm_card_visa when empty
	prepare func(*shop) string // makes the card, where it takes more than a name
	tries   []try
	calls   string // to the provider, until the answer is final; not compared when empty
	alarm   bool   // somebody is told
}

// try is the first request, or a retry.
type try struct {
	before func(*shop)
	faults []stripetest.Rule  // until the next try
	around func(*shop) around // the same
	want   string             // as say puts it
}

// One row per thing that a provider can do, and what the client is told each
// time it asks until the answer is final. Each row is played twice: the client
// retries, or the completer goes on without one. The pool has one connection.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string][]outcome{
		"cards":   cardOutcomes(),
		"create":  createOutcomes(),
		"confirm": confirmOutcomes(),
		"read":    readOutcomes(),
		"cancel":  cancelOutcomes(),
		"behind":  behindOutcomes(),
		"strange": strangeOutcomes(),
		"hiccups": hiccups(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{})
			for i, row := range rows {
				t.Run(row.name, func(t *testing.T) {
					row.play(s.with(t, idempotency.Key(fmt.Sprintf("retried-by-the-client-%d", i))), (*shop).buy)
					if len(row.tries) > 1 {
						row.play(s.with(t, idempotency.Key(fmt.Sprintf("taken-up-by-the-completer-%d", i))), (*shop).takeUp)
					}
				})
			}
		})
	}
}

// The rows in which the provider says nothing, so that only time ends a try.
func TestOutcomes_silence(t *testing.T) {
	t.Parallel()
	for _, row := range silentOutcomes() {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{stepTimeout: time.Second})
			row.play(s, (*shop).buy)
		})
	}
}

func (o outcome) play(s *shop, retry func(s *shop, card string) (idempotency.Result, error)) {
	t := s.t
	card := visa
	switch {
	case o.prepare != nil:
		card = o.prepare(s)
	case o.card != "":
		card = o.card
	}
	s.wire.forget()
	alarms := s.log.alarms()
	ask := (*shop).buy
	for i, try := range o.tries {
		if try.before != nil {
			try.before(s)
		}
		if try.around != nil {
			s.wire.put(try.around(s))
		}
		var faults []*stripetest.Injection
		for _, rule := range try.faults {
			faults = append(faults, s.stripe.Inject(rule))
		}
		require.Equal(t, try.want, say(ask(s, card)), "try %d, calls: %s", i+1, s.wire.said())
		for _, fault := range faults {
			require.NotZero(t, fault.Triggered(), "try %d: the fault did not strike", i+1)
			fault.Release()
		}
		s.wire.put(nil)
		ask = retry
	}
	if o.calls != "" {
		require.Equal(t, o.calls, s.wire.said())
	}
	require.Equal(t, o.alarm, s.log.alarms() > alarms)

	// What is final stays, and costs the provider nothing.
	s.wire.forget()
	for range 2 {
		result, err := s.buy(card)
		require.Equal(t, o.tries[len(o.tries)-1].want, say(result, err))
		require.True(t, result.Replayed)
	}
	require.Empty(t, s.wire.said())
	s.checkFinal()
}

// checkFinal compares the stored answer with the order and the ledger.
func (s *shop) checkFinal() {
	s.t.Helper()
	result, err := s.resume()
	require.NoError(s.t, err)
	charges := s.stripe.ChargesByOrder(orderOf(s.account, s.key).String())
	switch result.Response.Status {
	case http.StatusCreated:
		require.Equal(s.t, orders.StatusPaid, s.order().Status)
		require.Len(s.t, charges, 1)
		require.EqualValues(s.t, basketAmount, charges[0].Amount)
	default:
		require.Equal(s.t, orders.StatusPaymentFailed, s.order().Status)
		require.Empty(s.t, charges)
		require.Equal(s.t, map[string]string{"Content-Type": "application/problem+json"}, result.Response.Headers)
	}
	checkBooks(s.t, s)
}

// failing is a fault that lasts for a whole try.
func failing(fault stripetest.Fault, endpoints ...string) []stripetest.Rule {
	var rules []stripetest.Rule
	for _, endpoint := range endpoints {
		rules = append(rules, stripetest.Rule{Fault: fault, Endpoint: endpoint, Times: stripetest.Always})
	}
	return rules
}

// once is a fault that strikes one request.
func once(fault stripetest.Fault, endpoint string) []stripetest.Rule {
	return []stripetest.Rule{{Fault: fault, Endpoint: endpoint}}
}

func cardOutcomes() []outcome {
	rows := []outcome{
		{
			name:  "a payment method that nobody knows",
			card:  "pm_nobody_knows",
			tries: []try{{want: "422 resource_missing"}},
			calls: "create 400",
		},
		{
			name: "a payment that takes its time and succeeds",
			card: stripetest.ProcessingCard,
			tries: []try{
				{want: "unknown 30s"},
				{want: "unknown 30s"},
				{before: settle(true), want: "201"},
			},
			calls: "create 200, confirm 200, get 200 ×2",
		},
		{
			name: "a payment that takes its time and fails",
			card: stripetest.ProcessingCard,
			tries: []try{
				{want: "unknown 30s"},
				{before: settle(false), want: "402 card_declined generic_decline"},
			},
			calls: "create 200, confirm 200, get 200",
		},
	}
	for _, card := range []string{
		visa, "pm_card_mastercard_prepaid", "pm_card_jp", "pm_card_avsZipFail", "pm_card_riskLevelElevated", "pm_card_createDispute",
		"pm_card_authenticationRequiredSetupForOffSession",
	} {
		rows = append(rows, outcome{name: card, card: card, tries: []try{{want: "201"}}, calls: "create 200, confirm 200"})
	}
	for card, want := range map[string]string{
		"pm_card_visa_chargeDeclined":                                   "402 card_declined generic_decline",
		"pm_card_visa_chargeDeclinedInsufficientFunds":                  "402 card_declined insufficient_funds",
		"pm_card_visa_chargeDeclinedLostCard":                           "402 card_declined lost_card",
		"pm_card_visa_chargeDeclinedStolenCard":                         "402 card_declined stolen_card",
		"pm_card_visa_chargeDeclinedVelocityLimitExceeded":              "402 card_declined card_velocity_exceeded",
		"pm_card_chargeDeclinedExpiredCard":                             "402 expired_card expired_card",
		"pm_card_chargeDeclinedIncorrectCvc":                            "402 incorrect_cvc incorrect_cvc",
		"pm_card_chargeDeclinedProcessingError":                         "402 processing_error processing_error",
		"pm_card_chargeCustomerFail":                                    "402 card_declined generic_decline",
		"pm_card_radarBlock":                                            "402 card_declined fraudulent",
		"pm_card_authenticationRequired":                                "402 authentication_required authentication_required",
		"pm_card_authenticationRequiredChargeDeclinedInsufficientFunds": "402 authentication_required authentication_required",
	} {
		rows = append(rows, outcome{name: card, card: card, tries: []try{{want: want}}, calls: "create 200, confirm 402"})
	}
	return rows
}

// settle decides what becomes of a payment that is open.
func settle(success bool) func(*shop) {
	return func(s *shop) {
		require.NoError(s.t, s.stripe.Settle(*s.order().PaymentIntentID, success))
	}
}

// hiccups strike one request. Sending it again is enough, and nobody notices.
func hiccups() []outcome {
	var rows []outcome
	for fault, status := range map[stripetest.Fault]int{
		stripetest.CloseBefore: 0,
		stripetest.RateLimit:   429,
		stripetest.LockTimeout: 429,
		stripetest.Unavailable: 503,
		stripetest.KeyInUse:    409,
		stripetest.CloseAfter:  0,
		stripetest.ResetAfter:  0,
		stripetest.CutBody:     200,
		stripetest.BadGateway:  502,
	} {
		calls := fmt.Sprintf("create %d, create 200, confirm %d, confirm 200", status, status)
		if status == 200 {
			calls = "create 200 ×2, confirm 200 ×2"
		}
		rows = append(rows, outcome{
			name:  string(fault),
			tries: []try{{faults: slices.Concat(once(fault, createEndpoint), once(fault, confirmEndpoint)), want: "201"}},
			calls: calls,
		})
	}
	return rows
}
