package orders_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/idempotency/idempotencytest"
	"example.com/orders-api/orders"
)

// A stored answer, and an order that was begun, outlive a rule that was
// tightened since (R19, R4).
func TestCreate_rulesChangedSince(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	req := request(t, s.account, s.key, visa)
	old := []byte(`{"cents":"all of them"}`)

	t.Run("before the answer", func(t *testing.T) {
		s := s.with(t, s.key)
		s.stopAt(createEndpoint, visa)
		s.exec("UPDATE idempotency_keys SET request_params = $1, params_hash = $2", old, fingerprintOf(t, s, req, old))
		req.Params = old
		require.Equal(t, "201", say(s.create(req)))
		checkBooks(t, s)
	})
	t.Run("after the answer", func(t *testing.T) {
		s := s.with(t, s.key)
		result, err := s.create(req)
		require.NoError(t, err)
		require.True(t, result.Replayed)
		require.Equal(t, "201", say(result, nil))
	})
	t.Run("for a new key", func(t *testing.T) {
		s := s.with(t, "a-new-key-with-an-old-request")
		req.Key = s.key
		require.Equal(t, "invalid", say(s.create(req)))
		checkBooks(t, s)
	})
}

// fingerprintOf takes from the engine what it stores for a request with other
// parameters.
func fingerprintOf(t *testing.T, s *shop, req orders.Request, params []byte) []byte {
	t.Helper()
	id := idempotencytest.PutKey(t, s.pool, idempotency.Request{
		AccountID: req.AccountID,
		Key:       "a-key-for-its-fingerprint",
		Method:    req.Method,
		Path:      req.Path,
		Params:    params,
	}, "create_order", idempotencytest.State{})
	var hash []byte
	require.NoError(t, s.pool.QueryRow(t.Context(), "DELETE FROM idempotency_keys WHERE id = $1 RETURNING params_hash", id).Scan(&hash))
	return hash
}

// A key that was reaped never executes again (R17).
func TestCreate_reapedKey(t *testing.T) {
	t.Parallel()
	for name, card := range map[string]string{"a paid order": visa, "a failed order": "pm_card_visa_chargeDeclined"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{})
			_, err := s.buy(card)
			require.NoError(t, err)
			charges := s.stripe.Charges()
			s.wire.forget()
			s.exec("DELETE FROM idempotency_keys")

			for _, again := range []string{card, "pm_card_mastercard"} {
				_, err = s.buy(again)
				var expired *orders.KeyExpiredError
				require.ErrorAs(t, err, &expired)
				require.Equal(t, orderOf(s.account, s.key), expired.OrderID)
				require.ErrorContains(t, err, expired.OrderID.String())
			}
			require.Zero(t, s.count("SELECT count(*) FROM idempotency_keys"))
			require.Equal(t, charges, s.stripe.Charges())
			require.Empty(t, s.wire.said())
			checkBooks(t, s)
		})
	}
}

// A failover may lose what was committed last. Ids are derived, so the retry
// finds the same payment (R5).
func TestCreate_failoverThatLosesRows(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		card   string
		calls  string
		answer string
	}{
		"of a paid order":      {visa, "create 200, confirm 200", "201"},
		"of a declined order":  {"pm_card_visa_chargeDeclinedLostCard", "create 200, confirm 402", "402 card_declined lost_card"},
		"of a processing one":  {"pm_card_standinProcessing", "create 200, confirm 200", "unknown 30s"},
		"of one never to make": {"pm_nobody_knows", "create 400", "422 resource_missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{})
			require.Equal(t, test.answer, say(s.buy(test.card)))
			before := s.order()
			intents := s.intents()

			s.exec("DELETE FROM orders")
			s.exec("DELETE FROM idempotency_keys")
			s.exec("DELETE FROM staged_jobs")
			s.exec("DELETE FROM audit_records")
			s.books.forget() // the answer is lost as well
			s.wire.forget()

			require.Equal(t, test.answer, say(s.buy(test.card)))
			require.Equal(t, test.calls, s.wire.said())
			require.Equal(t, before.ID, s.order().ID)
			require.Equal(t, before.PaymentIntentID, s.order().PaymentIntentID)
			require.Equal(t, intents, s.intents())
			if test.answer == "unknown 30s" {
				settle(true)(s)
				require.Equal(t, "201", say(s.buy(test.card)))
			}
			s.checkFinal()
		})
	}
}
