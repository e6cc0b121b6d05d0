package orders_test

import (
	"net/url"
	"strings"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

const declinedCard = "pm_card_visa_chargeDeclined"

// differenceCase is something wrong, what is found of it, and what a fix does.
type differenceCase struct {
	plant func(*shop)
	want  []string
	fixed []string // as want, and the outcome of the fix; want when nothing is to be done
	calls string   // what the provider is asked for by the run that fixes
	left  []string // what is found an hour later
}

func differenceCases() map[string]differenceCase {
	confirm := url.Values{"confirm": {"true"}, "off_session": {"true"}}
	bought := func(card string, then func(*shop)) func(*shop) {
		return func(s *shop) {
			_, err := s.buy(card)
			require.NoError(s.t, err)
			then(s)
		}
	}
	stopped := func(endpoint string, then func(*shop)) func(*shop) {
		return func(s *shop) {
			s.stopAt(endpoint, visa)
			then(s)
		}
	}
	sql := func(statements ...string) func(*shop) {
		return func(s *shop) {
			for _, statement := range statements {
				s.exec(statement)
			}
		}
	}
	nothing := func(*shop) {}
	const bookedAsPaid = `UPDATE orders SET status = 'paid', paid_at = created_at`
	const bookedAsFailed = `UPDATE orders SET status = 'payment_failed', paid_at = NULL`
	const finished = `UPDATE idempotency_keys SET recovery_point = 'finished', finished_at = last_run_at, response_code = 201, response_headers = '{}', response_body = ''`
	return map[string]differenceCase{
		"charged on a second intent": {
			plant: bought(visa, func(s *shop) { s.plant(visa, confirm) }),
			want:  []string{"charged_twice: intent succeeded, order paid, which names ID, client told 201, charged on ID too"},
			calls: "list 200, get 200",
		},
		"charged twice, and the order lost": {
			plant: bought(visa, func(s *shop) {
				s.plant(visa, confirm)
				s.lose()
			}),
			want: []string{
				"charged_twice: intent succeeded, no such order, charged on ID too",
				"charge_without_order: intent succeeded, no such order",
			},
			calls: "list 200",
		},
		"an order lost after its charge": {
			plant: bought(visa, (*shop).lose),
			want:  []string{"charge_without_order: intent succeeded, no such order"},
			calls: "list 200",
		},
		"an account lost": {
			plant: func(s *shop) {
				s.plant(visa, url.Values{"metadata[account_id]": {uuid.NewString()}})
				s.plant(visa, url.Values{"metadata[account_id]": {uuid.NewString()}, "confirm": {"true"}, "off_session": {"true"}})
			},
			want: []string{
				"charge_without_order: intent succeeded, no such account",
				"intent_left_behind: intent requires_confirmation, no such account",
			},
			fixed: []string{
				"charge_without_order: intent succeeded, no such account",
				"intent_left_behind: intent requires_confirmation, no such account =/=> not cancelled: the account is not ours, so somebody else may be about to use the intent",
			},
			calls: "list 200, get 200",
		},
		"charged after the decline was told": {
			plant: bought(declinedCard, func(s *shop) { s.plant(visa, confirm) }),
			want:  []string{"charge_not_booked: intent succeeded, order payment_failed, which names ID, client told 402"},
			calls: "list 200, get 200",
		},
		"charged, and booked as failed": {
			plant: bought(visa, sql(bookedAsFailed)),
			want:  []string{"charge_not_booked: intent succeeded, order payment_failed, client told 201"},
			calls: "list 200",
		},
		"charged, and the client told of a failure": {
			plant: bought(visa, sql(`UPDATE idempotency_keys SET response_code = 402`)),
			want:  []string{"charge_not_booked: intent succeeded, order paid, client told 402"},
			calls: "list 200",
		},
		"charged elsewhere while the key is unfinished": {
			plant: stopped(confirmEndpoint, func(s *shop) { s.plant(visa, confirm) }),
			want: []string{
				"charge_not_booked: intent succeeded, order pending, which names ID, key unfinished",
				stuckAt("charge_created"),
			},
			fixed: []string{
				"charge_not_booked: intent succeeded, order pending, which names ID, key unfinished",
				stuckAt("charge_created") + " =/=> not resumed: the order is charged on ID, and would be once more",
			},
			calls: "list 200, get 200",
		},
		"booked as paid, and not confirmed": {
			plant: stopped(confirmEndpoint, sql(finished, bookedAsPaid)),
			want:  []string{"order_without_charge: intent requires_confirmation, order paid, client told 201"},
			calls: "list 200",
		},
		"booked as paid, and nowhere at the provider": {
			plant: bought(visa, sql(`UPDATE orders SET payment_intent_id = 'pi_nobody'`)),
			want: []string{
				"charge_not_booked: intent succeeded, order paid, which names pi_nobody, client told 201",
				"order_without_charge: the provider does not know the intent",
			},
			calls: "list 200, get 404 ×2",
		},
		"booked as paid by another order's charge": {
			plant: bought(visa, func(s *shop) {
				other := s.plant(visa, url.Values{"metadata[order_id]": {"b-1"}, "confirm": {"true"}, "off_session": {"true"}})
				s.exec("UPDATE orders SET payment_intent_id = $1", other.ID)
			}),
			want: []string{
				"charge_not_booked: intent succeeded, order paid, which names ID, client told 201",
				"order_without_charge: the intent is about another order",
			},
			calls: "list 200, get 200 ×2",
		},
		"another amount": {
			plant: bought(visa, sql(`UPDATE orders SET amount = amount + 1`)),
			want:  []string{"amount_differs: intent succeeded, order paid, client told 201"},
			calls: "list 200",
		},
		"another currency": {
			plant: bought(visa, sql(`UPDATE orders SET currency = 'eur'`)),
			want:  []string{"amount_differs: intent succeeded, order paid, client told 201"},
			calls: "list 200",
		},
		"still processing after a failure was told": {
			plant: bought(declinedCard, func(s *shop) { s.plant(stripetest.ProcessingCard, confirm) }),
			want:  []string{"intent_unsettled: intent processing, order payment_failed, which names ID, client told 402"},
			calls: "list 200",
		},
		"waiting for a card's owner, and the order lost": {
			plant: func(s *shop) {
				s.plant("pm_card_authenticationRequired", url.Values{"confirm": {"true"}})
			},
			want:  []string{"intent_unsettled: intent requires_action, no such order"},
			calls: "list 200",
		},
		"a pending order without a key": {
			plant: stopped(confirmEndpoint, sql(`DELETE FROM idempotency_keys`)),
			want: []string{
				"order_abandoned: order pending, no unfinished key",
				"intent_left_behind: intent requires_confirmation, order pending",
			},
			fixed: []string{
				"order_abandoned: order pending, no unfinished key",
				"intent_left_behind: intent requires_confirmation, order pending => cancelled",
			},
			calls: "list 200, get 200, cancel 200",
			left:  []string{"order_abandoned: order pending, no unfinished key"},
		},
		"a key given up": {
			plant: stopped(confirmEndpoint, sql(`UPDATE idempotency_keys SET needs_review_at = last_run_at`)),
			want:  []string{strings.Replace(stuckAt("charge_created"), "key_stuck", "key_needs_review", 1)},
			calls: "list 200",
		},
		"a key stuck before the intent": {
			plant: stopped(createEndpoint, nothing),
			want:  []string{stuckAt("order_created")},
			fixed: []string{stuckAt("order_created") + " => resumed: answered 201"},
			calls: "list 200, create 200, get 200, confirm 200",
			left:  []string{},
		},
		"a key stuck behind the intent": {
			plant: stopped(confirmEndpoint, nothing),
			want:  []string{stuckAt("charge_created")},
			fixed: []string{stuckAt("charge_created") + " => resumed: answered 201"},
			calls: "list 200, get 200, confirm 200",
			left:  []string{},
		},
		"a stuck key of a newer version": {
			plant: stopped(confirmEndpoint, sql(`UPDATE idempotency_keys SET operation = 'create_wish'`)),
			want:  []string{strings.Replace(stuckAt("charge_created"), "create_order", "create_wish", 1)},
			fixed: []string{strings.Replace(stuckAt("charge_created"), "create_order", "create_wish", 1) +
				` =/=> resumed without an outcome: the idempotency key was written by a newer version: operation "create_wish"`},
			calls: "list 200",
		},
		"two intents left behind by a paid order": {
			plant: bought(visa, func(s *shop) {
				s.plant(visa, nil)
				s.plant("", nil)
			}),
			want: []string{
				"intent_left_behind: intent requires_payment_method, order paid, which names ID, client told 201",
				"intent_left_behind: intent requires_confirmation, order paid, which names ID, client told 201",
			},
			fixed: []string{
				"intent_left_behind: intent requires_payment_method, order paid, which names ID, client told 201 => cancelled",
				"intent_left_behind: intent requires_confirmation, order paid, which names ID, client told 201 => cancelled",
			},
			calls: "list 200, get 200, cancel 200, get 200, cancel 200",
			left:  []string{},
		},
		"an intent left behind by a lost order": {
			plant: stopped(confirmEndpoint, (*shop).lose),
			want:  []string{"intent_left_behind: intent requires_confirmation, no such order"},
			fixed: []string{"intent_left_behind: intent requires_confirmation, no such order => cancelled"},
			calls: "list 200, get 200, cancel 200",
			left:  []string{},
		},
		"an intent left behind by a failed order": {
			plant: stopped(confirmEndpoint, sql(finished, bookedAsFailed)),
			want:  []string{"intent_left_behind: intent requires_confirmation, order payment_failed, client told 201"},
			fixed: []string{"intent_left_behind: intent requires_confirmation, order payment_failed, client told 201 => cancelled"},
			calls: "list 200, get 200, cancel 200",
			left:  []string{},
		},
		"an intent that an unfinished key will not take": {
			plant: stopped(confirmEndpoint, func(s *shop) { s.plant(visa, nil) }),
			want: []string{
				stuckAt("charge_created"),
				"intent_left_behind: intent requires_confirmation, order pending, which names ID, key unfinished",
			},
			fixed: []string{
				stuckAt("charge_created") + " => resumed: answered 201",
				"intent_left_behind: intent requires_confirmation, order pending, which names ID, key unfinished => cancelled",
			},
			calls: "list 200, get 200, cancel 200, get 200, confirm 200",
			left:  []string{},
		},
	}
}

// stuckAt is what is found of a key whose provider took no request.
func stuckAt(point string) string {
	return "key_stuck: create_order at " + point + " after 1 runs, the last at TIME: the payment provider is unavailable: " +
		"payments: not run, status 429, type invalid_request_error, code rate_limit, request ID"
}
