package orderstest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

// Step is a fault, a request with its expected [Outcome], or an act of the customer, an operator or
// another program. The tests import this package with a dot, so that a list of steps can be read as a story.
type Step func(*Fixture)

type scenario struct {
	ByCompleter bool                    // the retry
	Faults      []*stripetest.Injection // until the next request has ended
	Retried     bool
	Result      idempotency.Result // of the last request

	card       string
	offSession bool
	sentKey    idempotency.Key // of the last request
	send       func(*Fixture) (idempotency.Result, error)
	outcome    string // of the last request
	alerted    bool   // an error was logged for an operator
}

// Do executes steps.
func (f *Fixture) Do(steps ...Step) {
	f.T.Helper()
	for _, step := range steps {
		step(f)
	}
}

// Create sends the order.
func Create(want string) Step {
	return func(f *Fixture) {
		f.T.Helper()
		f.Request(want, f.Key, func(f *Fixture) (idempotency.Result, error) { return f.CreateOrder(f.card) })
	}
}

// Request sends a request, which Retry repeats.
func (f *Fixture) Request(want string, key idempotency.Key, send func(*Fixture) (idempotency.Result, error)) {
	f.T.Helper()
	f.sentKey, f.send = key, send
	f.Expect(want, send)
}

// Retry repeats the last request.
func Retry(want string) Step {
	return func(f *Fixture) {
		f.T.Helper()
		f.Retried = true
		switch {
		case !f.ByCompleter:
			f.Expect(want, f.send)
		case f.sentKey == f.Key:
			f.Expect(want, (*Fixture).Resume)
		default:
			f.Expect(want, func(f *Fixture) (idempotency.Result, error) { return f.ResumeKey(f.sentKey) })
		}
	}
}

// Expect requires that a request has an outcome, and meets all faults. Then it ends them.
func (f *Fixture) Expect(want string, send func(*Fixture) (idempotency.Result, error)) {
	f.T.Helper()
	var err error
	f.Result, err = send(f)
	f.outcome = Outcome(f.Result, err)
	require.Equal(f.T, want, f.outcome, "calls: %s", f.Transport.Calls())
	for _, fault := range f.Faults {
		require.NotZero(f.T, fault.Triggered(), "the fault was not triggered")
		fault.Release()
	}
	f.Faults = nil
	f.Transport.Intercept(nil)
}

// ExpectCalls requires the calls since the last reset.
func ExpectCalls(want string) Step {
	return func(f *Fixture) { require.Equal(f.T, want, f.Transport.Calls()) }
}

// ExpectCharges requires that the order was charged n times.
func ExpectCharges(n int) Step {
	return func(f *Fixture) {
		require.Len(f.T, f.Stripe.ChargesByOrder(OrderID(f.Account, f.Key).String()), n)
	}
}

// ExpectAlert requires that the scenario logs an error.
func ExpectAlert(f *Fixture) { f.alerted = true }

// PayWith chooses the card.
func PayWith(card string) Step { return func(f *Fixture) { f.card = card } }

// OffSession means that the customer is absent.
func OffSession(f *Fixture) { f.offSession = true }

// CreatePaid creates a paid order.
func CreatePaid(paymentMethod string) Step {
	return func(f *Fixture) {
		f.T.Helper()
		f.Do(PayWith(paymentMethod), Create("201"))
		f.Transport.Reset()
	}
}

// Challenge creates an order whose payment the customer must approve.
func Challenge(f *Fixture) { f.Do(PayWith(ChallengeCard), Create("202 action required")) }

// Approve is the customer's approval.
func Approve(f *Fixture) {
	require.NoError(f.T, f.Stripe.Authenticate(*f.GetOrder().PaymentIntentID, true))
}

// FailChallenge is a customer who does not approve.
func FailChallenge(f *Fixture) {
	require.NoError(f.T, f.Stripe.Authenticate(*f.GetOrder().PaymentIntentID, false))
}

// CustomerCannotPay requires that the client secret is of no use any more.
func CustomerCannotPay(f *Fixture) {
	id := *f.GetOrder().PaymentIntentID
	require.Error(f.T, f.Stripe.Authenticate(id, true))
	require.Error(f.T, f.Stripe.ConfirmAsCustomer(id, Visa))
}

// InProcess creates an order whose payment takes time.
func InProcess(f *Fixture) {
	f.Do(PayWith(stripetest.ProcessingCard), Create("503 outcome unknown, 30s"))
}

// PaymentSucceeds ends a payment that takes time.
func PaymentSucceeds(f *Fixture) {
	require.NoError(f.T, f.Stripe.Settle(*f.GetOrder().PaymentIntentID, true))
}

// PaymentFails ends a payment that takes time.
func PaymentFails(f *Fixture) {
	require.NoError(f.T, f.Stripe.Settle(*f.GetOrder().PaymentIntentID, false))
}

// StopBefore creates an order whose run ends before a call has an effect.
func StopBefore(call string) Step {
	return func(f *Fixture) {
		f.T.Helper()
		f.Do(RateLimit(call), Create("503 unavailable, 2s"))
		f.Transport.Reset()
	}
}

// KillDuring creates an order whose run knows nothing of a call's effect, and whose lease is over.
func KillDuring(call string) Step {
	return func(f *Fixture) {
		f.T.Helper()
		want := "503 unavailable, 1s"
		if call == Confirm {
			want = "503 outcome unknown, 1s"
			f.Do(LoseResponse(GetIntent))
		}
		f.Do(LoseResponse(call), Create(want))
		f.SetLease(LeaseDuration + time.Second)
		f.Transport.Reset()
	}
}

// LoseRows leaves the state after a failover that lost all rows of the order.
func LoseRows(f *Fixture) {
	f.T.Helper()
	order := OrderID(f.Account, f.Key)
	f.Exec("DELETE FROM staged_jobs WHERE args->>'order_id' = $1", order.String())
	f.Exec("DELETE FROM audit_records WHERE resource_id = $1", order.String())
	f.Exec("DELETE FROM orders WHERE id = $1", order)
	f.Exec("DELETE FROM idempotency_keys WHERE id = $1", idempotency.KeyID(f.Account, f.Key))
	f.responses.reset()
	f.Transport.Reset()
}

// SetEndpoint stages events for the shop from now on.
func SetEndpoint(f *Fixture) { f.Orders.Events = true }

// Run executes a scenario. If it has a final response, the next request replays it without a call.
func (f *Fixture) Run(steps []Step) {
	f.T.Helper()
	errorLines := f.Log.Errors()
	f.Transport.Reset()
	f.Do(steps...)
	require.Equal(f.T, f.alerted, f.Log.Errors() > errorLines)
	if strings.HasPrefix(f.outcome, "503") {
		return
	}
	f.Transport.Reset()
	result, err := f.send(f)
	require.Equal(f.T, f.outcome, Outcome(result, err))
	require.True(f.T, result.Replayed)
	require.Empty(f.T, f.Transport.Calls())
}

// ProviderObject is an object of the provider.
type ProviderObject struct {
	ID            string `json:"id"`
	PaymentMethod string `json:"payment_method"`
}

// OutOfBand sends another program's request with these parameters to the provider. An empty value removes a parameter.
func (f *Fixture) OutOfBand(path string, parameters ...string) (object ProviderObject) {
	f.T.Helper()
	form := url.Values{}
	for parameter := range slices.Chunk(parameters, 2) {
		if form.Set(parameter[0], parameter[1]); parameter[1] == "" {
			form.Del(parameter[0])
		}
	}
	req := httptest.NewRequestWithContext(f.T.Context(), http.MethodPost, path, strings.NewReader(form.Encode()))
	req.Header.Set("Authorization", "Bearer sk_test_another_program")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	recorder := httptest.NewRecorder()
	f.Stripe.ServeHTTP(recorder, req)
	require.Contains(f.T, []int{http.StatusOK, http.StatusPaymentRequired}, recorder.Code, recorder.Body.String())
	require.NoError(f.T, json.Unmarshal(recorder.Body.Bytes(), &object))
	return object
}

// InsertIntent inserts an intent of the order, unconfirmed, and returns its id. Other parameters change it.
func (f *Fixture) InsertIntent(parameters ...string) string {
	f.T.Helper()
	return f.OutOfBand("/v1/payment_intents", append([]string{
		"amount", strconv.Itoa(OrderAmount), "currency", "usd", "payment_method", Visa,
		"metadata[account_id]", f.Account.String(),
		"metadata[order_id]", OrderID(f.Account, f.Key).String(),
		"metadata[idempotency_key_id]", idempotency.KeyID(f.Account, f.Key).String(),
		"automatic_payment_methods[enabled]", "true",
		"automatic_payment_methods[allow_redirects]", "never",
	}, parameters...)...).ID
}

// Intent is a PaymentIntent at the provider.
type Intent struct {
	ID       string            `json:"id"`
	Status   string            `json:"status"`
	Metadata map[string]string `json:"metadata"`
}

// Intents returns the order's intents, the newest first.
func (f *Fixture) Intents() []Intent {
	f.T.Helper()
	req := httptest.NewRequestWithContext(f.T.Context(), http.MethodGet, "/v1/payment_intents?limit=100", nil)
	req.Header.Set("Authorization", "Bearer sk_test_another_program")
	recorder := httptest.NewRecorder()
	f.Stripe.ServeHTTP(recorder, req)
	var page struct {
		Data []Intent `json:"data"`
	}
	require.NoError(f.T, json.Unmarshal(recorder.Body.Bytes(), &page))
	return slices.DeleteFunc(page.Data, func(i Intent) bool {
		return i.Metadata["order_id"] != OrderID(f.Account, f.Key).String()
	})
}

// IntentID returns the id of the order's only intent.
func (f *Fixture) IntentID() string {
	f.T.Helper()
	intents := f.Intents()
	require.Len(f.T, intents, 1)
	return intents[0].ID
}
