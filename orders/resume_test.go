package orders_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments/stripetest"
)

// The run that held the key is dead: whoever comes after its lease goes on.
func TestResume_everyRecoveryPoint(t *testing.T) {
	t.Parallel()
	points := []struct {
		point idempotency.RecoveryPoint
		leave func(s *shop)
		calls string
	}{
		{
			point: "order_created",
			leave: func(s *shop) { s.stopAt(createEndpoint, visa) },
			calls: "create 200, get 200, confirm 200",
		},
		{
			point: "charge_created",
			leave: func(s *shop) { s.stopAt(confirmEndpoint, visa) },
			calls: "get 200, confirm 200",
		},
	}
	s := openShop(t, terms{})
	for i, p := range points {
		for name, goOn := range map[string]func(*shop, string) (idempotency.Result, error){"Create": (*shop).buy, "Resume": (*shop).takeUp} {
			t.Run(fmt.Sprintf("%s by %s", p.point, name), func(t *testing.T) {
				s := s.with(t, idempotency.Key(fmt.Sprintf("left-behind-for-%s-%d", name, i)))
				p.leave(s)
				s.wire.forget()

				s.lease(lockTimeout - 10*time.Second)
				require.Equal(t, "in progress", say(goOn(s, visa)))
				require.Empty(t, s.wire.said())

				s.lease(lockTimeout + time.Second)
				result, err := goOn(s, visa)
				require.Equal(t, "201", say(result, err))
				require.Equal(t, p.point, result.From)
				require.False(t, result.Replayed)
				require.Equal(t, p.calls, s.wire.said())
				s.checkFinal()
			})
		}
	}
}

// Nobody asked for the payment of an order that was taken up by the completer.
func TestResume_recordsNoAddress(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	s.stopAt(confirmEndpoint, visa)
	require.Equal(t, "201", say(s.resume()))
	rows, err := s.pool.Query(t.Context(), "SELECT action || ' ' || coalesce(host(request_ip), 'nobody') FROM audit_records ORDER BY created_at")
	require.NoError(t, err)
	require.Equal(t, []string{"order.created 203.0.113.7", "order.charge_created 203.0.113.7", "order.paid nobody"}, texts(t, rows))
}

func TestResume_unknown(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	_, err := s.service.Resume(t.Context(), s.account, uuid.New())
	require.ErrorIs(t, err, idempotency.ErrNotFound)

	s.stopAt(createEndpoint, visa)
	s.exec("UPDATE idempotency_keys SET operation = 'create_wish'")
	_, err = s.resume()
	require.ErrorIs(t, err, idempotency.ErrNewerVersion)

	s.exec("UPDATE idempotency_keys SET operation = 'create_order', recovery_point = 'card_admired'")
	_, err = s.resume()
	require.ErrorIs(t, err, idempotency.ErrNewerVersion)
	require.Empty(t, s.wire.said())
}

// A key without its order is our own trouble, not the address that the client
// asked for.
func TestResume_orderMissing(t *testing.T) {
	t.Parallel()
	s := openShop(t, terms{})
	s.stopAt(createEndpoint, visa)
	s.exec("DELETE FROM orders")
	_, err := s.buy(visa)
	require.EqualError(t, err, fmt.Sprintf("the order of key %s is missing", idempotency.KeyID(s.account, s.key)))
}

// Sends that are still on their way when everything else has moved on (S11).
func TestStragglers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		endpoint string
		card     string
		told     string
		before   func(*shop)
		answer   string
	}{
		"a create, then the order is paid": {
			endpoint: createEndpoint, card: visa, told: "unavailable 1s", answer: "201",
		},
		"a create, then the order is declined": {
			endpoint: createEndpoint, card: "pm_card_chargeDeclinedExpiredCard", told: "unavailable 1s", answer: "402 expired_card expired_card",
		},
		"a confirm, then the order is paid": {
			endpoint: confirmEndpoint, card: visa, told: "unknown 1s", answer: "201",
		},
		"a confirm, then the order is declined": {
			endpoint: confirmEndpoint, card: "pm_card_radarBlock", told: "unknown 1s", answer: "402 card_declined fraudulent",
		},
		"a confirm, then the order is cancelled": {
			endpoint: confirmEndpoint, card: visa, told: "unknown 1s", before: cancelBehind, answer: "422 payment_intent_canceled",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, terms{stepTimeout: time.Second})
			held := s.stripe.Inject(stripetest.Rule{Fault: stripetest.HoldArrival, Endpoint: test.endpoint})
			resent := s.stripe.Inject(stripetest.Rule{Fault: stripetest.CloseBefore, Endpoint: test.endpoint, After: 1, Times: stripetest.Always})
			require.Equal(t, test.told, say(s.buy(test.card)))
			require.Equal(t, 1, held.Triggered())
			resent.Release()
			if test.before != nil {
				test.before(s)
			}
			require.Equal(t, test.answer, say(s.buy(test.card)))
			s.checkFinal()

			held.Release()
			require.Eventually(t, s.heldAnswered, 10*time.Second, time.Millisecond)
			s.checkFinal()
			require.Len(t, s.intents(), 1)
		})
	}
}

// heldAnswered says whether the provider has answered the request that was held,
// though nobody listened any more.
func (s *shop) heldAnswered() bool {
	for _, r := range s.stripe.Requests() {
		if slices.Contains(r.Faults, stripetest.HoldArrival) {
			return r.Status != 0
		}
	}
	return false
}
