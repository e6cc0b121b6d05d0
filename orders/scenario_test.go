package orders_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

// step is a fault, a request with its expected outcome (see outcomeOf), or an act of the
// customer, an operator or another program.
type step func(*fixture)

type scenario struct {
	card        string
	offSession  bool
	byCompleter bool // of the retry
	faults      []*stripetest.Injection
	sentKey     idempotency.Key // of the last request
	send        func(*fixture) (idempotency.Result, error)
	retried     bool
	result      idempotency.Result // of the last request
	outcome     string             // the same in words, see outcomeOf
	alerted     bool               // an error was logged for an operator
}

func (f *fixture) do(steps ...step) {
	f.t.Helper()
	for _, step := range steps {
		step(f)
	}
}

func create(want string) step {
	return func(f *fixture) {
		f.t.Helper()
		f.sentKey, f.send = f.key, func(f *fixture) (idempotency.Result, error) { return f.create(f.card) }
		f.expect(want, f.send)
	}
}

func retry(want string) step {
	return func(f *fixture) {
		f.t.Helper()
		f.retried = true
		switch {
		case !f.byCompleter:
			f.expect(want, f.send)
		case f.sentKey == f.key:
			f.expect(want, (*fixture).resume)
		default:
			f.expect(want, func(f *fixture) (idempotency.Result, error) { return f.resumeKey(f.sentKey) })
		}
	}
}

func retryByOperator(want string) step {
	return func(f *fixture) { f.expect(want, (*fixture).retry) }
}

func resolve(want string) step {
	return func(f *fixture) { f.expect(want, (*fixture).resolve) }
}

func (f *fixture) expect(want string, send func(*fixture) (idempotency.Result, error)) {
	f.t.Helper()
	var err error
	f.result, err = send(f)
	f.outcome = outcomeOf(f.result, err)
	require.Equal(f.t, want, f.outcome, "calls: %s", f.transport.calls())
	for _, fault := range f.faults {
		require.NotZero(f.t, fault.Triggered(), "the fault was not triggered")
		fault.Release()
	}
	f.faults = nil
	f.transport.intercept(nil)
}

func expectCalls(want string) step {
	return func(f *fixture) { require.Equal(f.t, want, f.transport.calls()) }
}

func expectCharges(n int) step {
	return func(f *fixture) {
		require.Len(f.t, f.Stripe.ChargesByOrder(orderID(f.Account, f.key).String()), n)
	}
}

func expectAlert(f *fixture) { f.alerted = true }

func payWith(card string) step { return func(f *fixture) { f.card = card } }

func offSession(f *fixture) { f.offSession = true }

func approve(f *fixture) {
	require.NoError(f.t, f.Stripe.Authenticate(*f.getOrder().PaymentIntentID, true))
}

func failChallenge(f *fixture) {
	require.NoError(f.t, f.Stripe.Authenticate(*f.getOrder().PaymentIntentID, false))
}

func payWithOtherCard(f *fixture) {
	require.NoError(f.t, f.Stripe.ConfirmAsCustomer(*f.getOrder().PaymentIntentID, visa))
}

func replaceCard(card string) step {
	return func(f *fixture) { require.NoError(f.t, f.Stripe.ReplaceMethod(*f.getOrder().PaymentIntentID, card)) }
}

func customerCannotPay(f *fixture) {
	id := *f.getOrder().PaymentIntentID
	require.Error(f.t, f.Stripe.Authenticate(id, true))
	require.Error(f.t, f.Stripe.ConfirmAsCustomer(id, visa))
}

func stopBefore(call string) step {
	return func(f *fixture) {
		f.t.Helper()
		f.do(rateLimit(call), create("503 unavailable, 2s"))
		f.transport.reset()
	}
}

func killDuring(call string) step {
	return func(f *fixture) {
		f.t.Helper()
		want := "503 unavailable, 1s"
		if call == confirm {
			want = "503 outcome unknown, 1s"
			f.do(loseResponse(getIntent))
		}
		f.do(loseResponse(call), create(want))
		f.setLease(leaseDuration + time.Second)
		f.transport.reset()
	}
}

func paymentSucceeds(f *fixture) {
	require.NoError(f.t, f.Stripe.Settle(*f.getOrder().PaymentIntentID, true))
}

func paymentFails(f *fixture) {
	require.NoError(f.t, f.Stripe.Settle(*f.getOrder().PaymentIntentID, false))
}

func cancelAtProvider(f *fixture) { f.outOfBand(f.intentPath()+"/cancel", nil) }

func confirmAtProvider(f *fixture) {
	f.outOfBand(f.intentPath()+"/confirm", url.Values{"off_session": {"true"}})
}

func confirmOnSession(f *fixture) { f.outOfBand(f.intentPath()+"/confirm", nil) }

func (f *fixture) run(steps []step) {
	f.t.Helper()
	errorLines := f.log.errorLines()
	f.transport.reset()
	f.do(steps...)
	require.Equal(f.t, f.alerted, f.log.errorLines() > errorLines)
	if strings.HasPrefix(f.outcome, "503") {
		return
	}
	f.transport.reset()
	result, err := f.send(f)
	require.Equal(f.t, f.outcome, outcomeOf(result, err))
	require.True(f.t, result.Replayed)
	require.Empty(f.t, f.transport.calls())
}

type providerObject struct {
	ID            string `json:"id"`
	PaymentMethod string `json:"payment_method"`
}

func (f *fixture) outOfBand(path string, form url.Values) (object providerObject) {
	f.t.Helper()
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	req.Header.Set("Authorization", "Bearer sk_test_another_program")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	recorder := httptest.NewRecorder()
	f.Stripe.ServeHTTP(recorder, req)
	require.Contains(f.t, []int{http.StatusOK, http.StatusPaymentRequired}, recorder.Code, recorder.Body.String())
	require.NoError(f.t, json.Unmarshal(recorder.Body.Bytes(), &object))
	return object
}

func (f *fixture) intentPath() string {
	f.t.Helper()
	id := f.getOrder().PaymentIntentID
	require.NotNil(f.t, id)
	return "/v1/payment_intents/" + *id
}

type intent struct {
	ID       string            `json:"id"`
	Status   string            `json:"status"`
	Metadata map[string]string `json:"metadata"`
}

func (f *fixture) intents() []intent {
	f.t.Helper()
	req := httptest.NewRequest(http.MethodGet, "/v1/payment_intents?limit=100", nil)
	req.Header.Set("Authorization", "Bearer sk_test_another_program")
	recorder := httptest.NewRecorder()
	f.Stripe.ServeHTTP(recorder, req)
	var page struct {
		Data []intent `json:"data"`
	}
	require.NoError(f.t, json.Unmarshal(recorder.Body.Bytes(), &page))
	return slices.DeleteFunc(page.Data, func(i intent) bool {
		return i.Metadata["order_id"] != orderID(f.Account, f.key).String()
	})
}

func expectIntents(statuses ...string) step {
	return func(f *fixture) {
		var got []string
		for _, intent := range f.intents() {
			got = append(got, intent.Status)
		}
		require.Equal(f.t, statuses, got)
	}
}
