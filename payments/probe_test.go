package payments_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments"
)

func TestProbeTellsVersionAndTime(t *testing.T) {
	t.Parallel()
	one := page(true, "pi_1")
	one.header = http.Header{"Stripe-Version": {"2020-08-27"}, "Date": {"Wed, 04 Mar 2026 17:06:07 GMT"}}
	provider := startProvider(t, answer{status: 503}, one)

	learnt, err := newClient(t, provider.url).Probe(t.Context())
	require.NoError(t, err)
	require.Equal(t, payments.Probe{APIVersion: "2020-08-27", Date: time.Date(2026, time.March, 4, 17, 6, 7, 0, time.UTC)}, learnt)
	require.Equal(t, "2024-06-20", payments.APIVersion)

	require.Len(t, provider.seen(), 2, "it is sent again, and reads no further page")
	asked := provider.seen()[1]
	require.Equal(t, "GET /v1/payment_intents", asked.method+" "+asked.path)
	require.Equal(t, url.Values{"limit": {"1"}}, asked.form)
}

func TestProbeOfSomethingElse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer answer
		want   error
	}{
		"a page":         {answer{status: 200, body: "<html>" + canary}, payments.ErrUnreadable},
		"another object": {answer{status: 200, body: `{"object":"` + canary + `"}`}, payments.ErrUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := newClient(t, startProvider(t, test.answer).url).Probe(t.Context())
			require.ErrorIs(t, failure(t, err), test.want)
		})
	}
}
