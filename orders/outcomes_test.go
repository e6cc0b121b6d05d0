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

// outcome is a behaviour of the provider and what it leads to.
type outcome struct {
	name      string
	card      string                // "" is pm_card_visa
	prepare   func(*fixture) string // creates the card, instead of card
	tries     []try
	calls     string // to the provider, until the response is stored; "" is not compared
	logsError bool   // an operator is alerted

	offSession bool // the customer is not present
}

// try is the first request, or a retry.
type try struct {
	before    func(*fixture)
	faults    []stripetest.Rule          // until the next try
	intercept func(*fixture) interceptor // the same
	want      string                     // see outcomeOf
}

// Each row has one behaviour of the provider, and the outcome of each request until
// there is a stored response. It runs twice: the client retries, or the completer
// resumes the key. The pool has one connection.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string][]outcome{
		"action":      actionOutcomes(),
		"cards":       cardOutcomes(),
		"create":      createOutcomes(),
		"confirm":     confirmOutcomes(),
		"get":         getOutcomes(),
		"cancel":      cancelOutcomes(),
		"out of band": outOfBandOutcomes(),
		"unexpected":  unexpectedOutcomes(),
		"transient":   transientOutcomes(),
		"account":     accountOutcomes(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{})
			for i, row := range rows {
				t.Run(row.name, func(t *testing.T) {
					row.run(f.withKey(t, idempotency.Key(fmt.Sprintf("retried-by-the-client-%d", i))), (*fixture).create)
					if len(row.tries) > 1 {
						row.run(f.withKey(t, idempotency.Key(fmt.Sprintf("resumed-by-the-completer-%d", i))), (*fixture).completerRun)
					}
				})
			}
		})
	}
}

// The provider does not respond, so each try ends with its deadline.
func TestOutcomes_timeout(t *testing.T) {
	t.Parallel()
	for _, row := range timeoutOutcomes() {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{stepTimeout: 3 * time.Second})
			row.run(f, (*fixture).create)
		})
	}
}

func (o outcome) run(f *fixture, retry func(f *fixture, card string) (idempotency.Result, error)) {
	t := f.t
	f.offSession = o.offSession
	card := visa
	switch {
	case o.prepare != nil:
		card = o.prepare(f)
	case o.card != "":
		card = o.card
	}
	f.transport.reset()
	errorLines := f.log.errorLines()
	ask := (*fixture).create
	for i, try := range o.tries {
		if try.before != nil {
			try.before(f)
		}
		if try.intercept != nil {
			f.transport.intercept(try.intercept(f))
		}
		var faults []*stripetest.Injection
		for _, rule := range try.faults {
			faults = append(faults, f.stripe.Inject(rule))
		}
		require.Equal(t, try.want, outcomeOf(ask(f, card)), "try %d, calls: %s", i+1, f.transport.calls())
		for _, fault := range faults {
			require.NotZero(t, fault.Triggered(), "try %d: the fault was not triggered", i+1)
			fault.Release()
		}
		f.transport.intercept(nil)
		ask = retry
	}
	if o.calls != "" {
		require.Equal(t, o.calls, f.transport.calls())
	}
	require.Equal(t, o.logsError, f.log.errorLines() > errorLines)

	// A stored response is replayed without a call to the provider.
	f.transport.reset()
	for range 2 {
		result, err := f.create(card)
		require.Equal(t, o.tries[len(o.tries)-1].want, outcomeOf(result, err))
		require.True(t, result.Replayed)
	}
	require.Empty(t, f.transport.calls())
	f.checkFinal()
}

// checkFinal compares the stored response with the order and the charges.
func (f *fixture) checkFinal() {
	f.t.Helper()
	result, err := f.resume()
	require.NoError(f.t, err)
	charges := f.stripe.ChargesByOrder(orderID(f.account, f.key).String())
	switch result.Response.Status {
	case http.StatusCreated:
		require.Equal(f.t, orders.StatusPaid, f.getOrder().Status)
		require.Len(f.t, charges, 1)
		require.EqualValues(f.t, orderAmount, charges[0].Amount)
	default:
		require.Equal(f.t, orders.StatusPaymentFailed, f.getOrder().Status)
		require.Empty(f.t, charges)
		require.Equal(f.t, map[string]string{"Content-Type": "application/problem+json"}, result.Response.Headers)
		if f.count("SELECT count(*) FROM audit_records WHERE resource_id = $1 AND action = 'order.requires_action'", orderID(f.account, f.key).String()) > 0 {
			customerFails(f) // no 402 or 422 for a charge that happens (R23)
		}
	}
	checkInvariants(f.t, f)
}

// always returns a fault of each endpoint that lasts until it is released.
func always(fault stripetest.Fault, endpoints ...string) []stripetest.Rule {
	var rules []stripetest.Rule
	for _, endpoint := range endpoints {
		rules = append(rules, stripetest.Rule{Fault: fault, Endpoint: endpoint, Times: stripetest.Always})
	}
	return rules
}

// once returns a fault of one request.
func once(fault stripetest.Fault, endpoint string) []stripetest.Rule {
	return []stripetest.Rule{{Fault: fault, Endpoint: endpoint}}
}

func cardOutcomes() []outcome {
	rows := []outcome{
		{
			name:  "unknown payment method",
			card:  "pm_nobody_knows",
			tries: []try{{want: "422 resource_missing"}},
			calls: "create 400",
		},
		{
			name: "processing, then succeeded",
			card: stripetest.ProcessingCard,
			tries: []try{
				{want: "unknown 30s"},
				{want: "unknown 30s"},
				{before: settlePayment(true), want: "201"},
			},
			calls: "create 200, confirm 200, get 200 ×2",
		},
		{
			name: "processing, then failed",
			card: stripetest.ProcessingCard,
			tries: []try{
				{want: "unknown 30s"},
				{before: settlePayment(false), want: "402 card_declined generic_decline"},
			},
			calls: "create 200, confirm 200, get 200, cancel 200",
		},
		{
			name:       "setup for off-session payments",
			card:       "pm_card_authenticationRequiredSetupForOffSession",
			offSession: true,
			tries:      []try{{want: "201"}},
			calls:      "create 200, confirm 200",
		},
	}
	for _, card := range []string{
		visa, "pm_card_mastercard_prepaid", "pm_card_jp", "pm_card_avsZipFail", "pm_card_riskLevelElevated", "pm_card_createDispute",
	} {
		rows = append(rows, outcome{name: card, card: card, tries: []try{{want: "201"}}, calls: "create 200, confirm 200"})
	}
	for card, want := range map[string]string{
		"pm_card_visa_chargeDeclined":                      "402 card_declined generic_decline",
		"pm_card_visa_chargeDeclinedInsufficientFunds":     "402 card_declined insufficient_funds",
		"pm_card_visa_chargeDeclinedLostCard":              "402 card_declined lost_card",
		"pm_card_visa_chargeDeclinedStolenCard":            "402 card_declined stolen_card",
		"pm_card_visa_chargeDeclinedVelocityLimitExceeded": "402 card_declined card_velocity_exceeded",
		"pm_card_chargeDeclinedExpiredCard":                "402 expired_card expired_card",
		"pm_card_chargeDeclinedIncorrectCvc":               "402 incorrect_cvc incorrect_cvc",
		"pm_card_chargeDeclinedProcessingError":            "402 processing_error processing_error",
		"pm_card_chargeCustomerFail":                       "402 card_declined generic_decline",
		"pm_card_radarBlock":                               "402 card_declined fraudulent",
	} {
		rows = append(rows, outcome{name: card, card: card, tries: []try{{want: want}}, calls: "create 200, confirm 402"})
	}
	for _, card := range authenticatedCards {
		rows = append(rows, outcome{
			name:       card + " off-session",
			card:       card,
			offSession: true,
			tries:      []try{{want: "402 authentication_required authentication_required"}},
			calls:      "create 200, confirm 402",
		})
	}
	return rows
}

// settlePayment makes the provider decide a payment in process.
func settlePayment(success bool) func(*fixture) {
	return func(f *fixture) {
		require.NoError(f.t, f.stripe.Settle(*f.getOrder().PaymentIntentID, success))
	}
}

// authenticate makes the customer end a 3-D Secure challenge.
func authenticate(approve bool) func(*fixture) {
	return func(f *fixture) {
		require.NoError(f.t, f.stripe.Authenticate(*f.getOrder().PaymentIntentID, approve))
	}
}

// transientOutcomes have a fault of one request each, after which it is sent again.
func transientOutcomes() []outcome {
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
