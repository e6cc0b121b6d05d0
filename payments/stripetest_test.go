package payments_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
	"example.com/orders-api/payments/stripetest"
)

// startStripe starts the fake Stripe. CompareBytes detects an unstable encoding of
// repeated requests.
func startStripe(t *testing.T) (*stripetest.Server, *payments.Client) {
	t.Helper()
	stripe := stripetest.New(stripetest.Options{CompareBytes: true})
	server := httptest.NewServer(stripe)
	t.Cleanup(server.Close)
	t.Cleanup(stripe.Close)
	return stripe, newClient(t, nil, at(server.URL))
}

func create(t *testing.T, client *payments.Client) payments.Intent {
	t.Helper()
	got, err := client.Create(t.Context(), createKey, createParams)
	require.NoError(t, err)
	require.Equal(t, payments.StatusRequiresConfirmation, got.Status)
	return got
}

func TestClient_fakeStripe(t *testing.T) {
	t.Parallel()
	stripe, client := startStripe(t)
	before := stripe.Now()
	created := create(t, client)
	require.Empty(t, stripe.MoneyMoved())

	confirmed, err := client.Confirm(t.Context(), confirmKey, created.ID, true)
	require.NoError(t, err)
	require.Equal(t, payments.StatusSucceeded, confirmed.Status)
	require.Equal(t, createParams.Amount, confirmed.AmountReceived)
	require.True(t, confirmed.Matches(createParams.Amount, createParams.Currency, "7b0f"))
	require.Equal(t, map[string]int64{"eur": 2500}, stripe.MoneyMoved())

	again, err := client.Confirm(t.Context(), confirmKey, created.ID, true)
	require.NoError(t, err)
	require.Equal(t, confirmed, again)

	read, err := client.Get(t.Context(), created.ID)
	require.NoError(t, err)
	require.Equal(t, confirmed, read)

	listed, next, err := client.List(t.Context(), before.Add(-time.Minute), stripe.Now().Add(time.Minute), "")
	require.NoError(t, err)
	require.Empty(t, next)
	require.Equal(t, []payments.Intent{read}, listed)

	_, err = client.Cancel(t.Context(), "k-cancel", created.ID)
	require.True(t, failure(t, err).UnexpectedState)
	require.Len(t, stripe.Charges(), 1)
}

func TestClient_responseLostOnce(t *testing.T) {
	t.Parallel()
	for _, fault := range []stripetest.Fault{stripetest.KeyInUse, stripetest.CloseAfter, stripetest.ResetAfter, stripetest.CutBody} {
		stripe, client := startStripe(t)
		onCreate := stripe.Inject(stripetest.Rule{Fault: fault, Endpoint: "POST /v1/payment_intents"})
		onConfirm := stripe.Inject(stripetest.Rule{Fault: fault, Endpoint: "POST /v1/payment_intents/{id}/confirm"})
		confirmed, err := client.Confirm(t.Context(), confirmKey, create(t, client).ID, true)
		require.NoError(t, err)
		require.Equal(t, payments.StatusSucceeded, confirmed.Status)
		require.Equal(t, []int{1, 1}, []int{onCreate.Triggered(), onConfirm.Triggered()})
		require.Equal(t, []int{1, 1}, []int{stripe.Executions(createKey), stripe.Executions(confirmKey)})
		require.Len(t, stripe.ChargesByOrder("7b0f"), 1)
	}
}
