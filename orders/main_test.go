package orders_test

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/migrations/dbtest"
	. "example.com/orders-api/orders/orderstest"
)

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "40"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(dbtest.Main{M: m})
}

func retryByOperator(want string) Step {
	return func(f *Fixture) {
		f.Expect(want, func(f *Fixture) (idempotency.Result, error) { return operate(f, f.Retry) })
	}
}

func resolve(want string) Step {
	return func(f *Fixture) {
		f.Expect(want, func(f *Fixture) (idempotency.Result, error) { return operate(f, f.Resolve) })
	}
}

func payWithOtherCard(f *Fixture) {
	require.NoError(f.T, f.Stripe.ConfirmAsCustomer(*f.GetOrder().PaymentIntentID, Visa))
}

func replaceCard(card string) Step {
	return func(f *Fixture) { require.NoError(f.T, f.Stripe.ReplaceMethod(*f.GetOrder().PaymentIntentID, card)) }
}

func cancelAtProvider(f *Fixture) { f.OutOfBand(intentPath(f) + "/cancel") }

func confirmAtProvider(f *Fixture) {
	f.OutOfBand(intentPath(f)+"/confirm", "off_session", "true")
}

func confirmOnSession(f *Fixture) { f.OutOfBand(intentPath(f) + "/confirm") }

func intentPath(f *Fixture) string {
	f.T.Helper()
	id := f.GetOrder().PaymentIntentID
	require.NotNil(f.T, id)
	return "/v1/payment_intents/" + *id
}

func expectIntents(statuses ...string) Step {
	return func(f *Fixture) {
		var got []string
		for _, intent := range f.Intents() {
			got = append(got, intent.Status)
		}
		require.Equal(f.T, statuses, got)
	}
}
