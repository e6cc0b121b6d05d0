package stripetest_test

import (
	"io"
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

func TestFaults(t *testing.T) {
	t.Parallel()
	const (
		executed  = "executed"
		replayed  = "replayed"
		stored500 = "stored 500"
	)
	tests := map[stripetest.Fault]struct {
		status  int // 0: no response
		code    string
		err     error
		charged bool
		again   string
	}{
		stripetest.CloseBefore:     {err: io.EOF, again: executed},
		stripetest.RateLimit:       {status: 429, code: "rate_limit", again: executed},
		stripetest.LockTimeout:     {status: 429, code: "lock_timeout", again: executed},
		stripetest.Unauthorized:    {status: 401, again: executed},
		stripetest.Unavailable:     {status: 503, again: executed},
		stripetest.KeyInUse:        {status: 409, code: "idempotency_key_in_use", again: executed},
		stripetest.ErrorBefore:     {status: 500, again: stored500},
		stripetest.AccountNotReady: {status: 400, again: replayed},
		stripetest.ErrorAfter:      {status: 500, charged: true, again: stored500},
		stripetest.ErrorLater:      {status: 500, again: stored500},
		stripetest.CloseAfter:      {err: io.EOF, charged: true, again: replayed},
		stripetest.ResetAfter:      {err: syscall.ECONNRESET, charged: true, again: replayed},
		stripetest.CutBody:         {status: 200, err: io.ErrUnexpectedEOF, charged: true, again: replayed},
		stripetest.BadGateway:      {status: 502, charged: true, again: replayed},
	}
	for fault, test := range tests {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			s := start(t, stripetest.Options{})
			path := intentsPath + "/" + s.create(unconfirmed) + "/confirm"
			i := s.Inject(stripetest.Rule{Fault: fault, Endpoint: "POST /v1/payment_intents/{id}/confirm", OrderID: "order-1"})

			first := s.post(path, "k", "off_session=true")
			if test.err != nil {
				require.ErrorIs(t, first.err, test.err)
			} else {
				require.NoError(t, first.err)
				require.Equal(t, test.status, first.status)
				require.Equal(t, test.code, first.field("error.code"))
			}
			require.Equal(t, 1, i.Triggered())
			require.Equal(t, test.charged, len(s.Charges()) == 1)
			if first.header.Get("Content-Type") == "text/html; charset=utf-8" {
				require.NotContains(t, first.header, "Request-Id", "from a proxy")
			}

			record := s.Requests()[1]
			require.Equal(t, []stripetest.Fault{fault}, record.Faults)
			require.Equal(t, test.status, record.Status)
			require.Equal(t, test.charged, record.Executed)
			require.Equal(t, "order-1", record.OrderID)

			second := s.post(path, "k", "off_session=true")
			require.NoError(t, second.err)
			require.Equal(t, test.again == executed, second.header.Get("Idempotent-Replayed") == "")
			require.Equal(t, test.again != executed, s.Requests()[2].Replayed)
			require.Equal(t, test.again == stored500, second.status == http.StatusInternalServerError)
			require.Empty(t, s.OrdersChargedTwice())
			require.Equal(t, test.charged || test.again == executed, len(s.Charges()) == 1)
		})
	}
}

func TestKey_inFlight(t *testing.T) {
	t.Parallel()
	s := start(t, stripetest.Options{})
	hold := s.Inject(stripetest.Rule{Fault: stripetest.HoldRunning, Key: "k"})
	first := s.background(intentsPath, "k", visa)
	reached(t, hold)

	requireError(t, s.post(intentsPath, "k", visa), http.StatusConflict, "idempotency_key_in_use", "")
	mismatch := s.post(intentsPath, "k", "amount=1&currency=usd")
	require.Equal(t, "idempotency_error", mismatch.field("error.type"), "the comparison comes first")
	require.Empty(t, s.Charges())

	hold.Release()
	require.Equal(t, http.StatusOK, (<-first).status)
	require.Equal(t, "true", s.post(intentsPath, "k", visa).header.Get("Idempotent-Replayed"), "the 409 was not stored")
	require.Equal(t, 1, s.executions("k"))
	require.Len(t, s.Charges(), 1)
}
