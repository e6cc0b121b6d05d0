//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"example.com/orders-api/client"
	"example.com/orders-api/payments/stripetest"
)

// purchase is one order and its refunds. Seed and number determine it, except for again
// and the times.
type purchase struct {
	exchanges
	email      string
	method     string
	amount     int64
	want       int // status of the final response
	challenge  challenge
	polls      bool          // the customer reads the key while the challenge is open
	approved   bool          // the provider accepted the customer's approval
	left       bool          // the customer left without a final response
	lateSecret time.Duration // after the charge window, a client secret was given out
	expires    bool          // is reaped before its last request
	refunds    []*refund
	cancel     *exchanges // nil: the order is not cancelled

	cancelForgotten bool // each cancel met no order, which a failover may have lost after it was cancelled

	atLeastOne bool // of the refunds must succeed
	concurrent bool // refunds are requested at the same time
	body       []byte
	again      *purchase // with a new key, after a failure or lost rows
}

type refund struct {
	exchanges
	amount int64 // 0: the rest
	want   int   // 0: 201, or 422 because of a concurrent refund
}

// challenge is what a customer does when the bank requires an approval (3-D Secure).
type challenge string

const (
	approvesSoon challenge = "approves soon"
	declines     challenge = "declines, and pays with a new key"
	paysAnew     challenge = "declines, and pays with another card in the browser"
	approvesLate challenge = "approves after the charge window"
	leaves       challenge = "never approves"
)

// method is a payment method with the status that the fake Stripe returns for it.
type method struct {
	name   string
	status int
	weight int
}

const challengeCard = "pm_card_threeDSecure2Required"

func methods() []method {
	return []method{
		{"pm_card_visa", http.StatusCreated, 40},
		{challengeCard, 0, 20}, // the customer decides
		{"pm_card_mastercard", http.StatusCreated, 7},
		{refundFails, http.StatusCreated, 3},
		{stripetest.ProcessingCard, http.StatusCreated, 10}, // the provider charges it later
		{"pm_card_pendingRefund", http.StatusCreated, 5},
		{"pm_card_chargeDeclined", http.StatusPaymentRequired, 8},
		{"pm_card_chargeDeclinedInsufficientFunds", http.StatusPaymentRequired, 4},
		{"pm_unknown", http.StatusUnprocessableEntity, 3},
	}
}

func newPurchase(seed uint64, number, accounts int) (*purchase, error) {
	r := random(seed, customerStream+uint64(number))
	account := number % accounts
	p := &purchase{
		// The same key in different accounts names different orders (R20).
		exchanges: exchanges{account: account, key: client.Key(fmt.Sprintf("soak-%d-order-%08d", seed, number/accounts))},
		email:     fmt.Sprintf("buyer-%d@soak.example.com", number),
		amount:    100 + r.Int64N(100_000),
	}
	choice := r.IntN(100)
	for _, m := range methods() {
		if choice -= m.weight; choice < 0 {
			p.method, p.want = m.name, m.status
			break
		}
	}
	if p.method == challengeCard {
		p.planChallenge(r)
	}
	if p.expires = r.IntN(50) == 0 && p.challenge != leaves; !p.expires {
		p.planRefunds(r)
	}
	if !p.expires && len(p.refunds) == 0 && r.IntN(7) == 0 {
		p.cancel = &exchanges{account: account, key: p.key + "-cancel"}
	}
	return p, p.encode()
}

func (p *purchase) encode() (err error) {
	p.body, err = json.Marshal(client.OrderParams{
		Email: p.email, Currency: "usd", PaymentMethod: p.method,
		Items: []client.Item{{SKU: "sku-" + p.email, Quantity: 1, UnitAmount: p.amount}},
	})
	return err
}

// planChallenge lets two thirds of the customers act soon. Of the others, half approve
// after CHARGE_WINDOW and half never. want is the status if the card is not charged.
func (p *purchase) planChallenge(r *rand.Rand) {
	p.polls = r.IntN(2) == 0
	switch choice := r.IntN(30); {
	case choice < 16:
		p.challenge, p.want = approvesSoon, http.StatusCreated
	case choice < 18:
		p.challenge, p.want = declines, http.StatusPaymentRequired
	case choice < 20:
		p.challenge, p.want = paysAnew, http.StatusPaymentRequired
	case choice < 25:
		p.challenge, p.want = approvesLate, http.StatusUnprocessableEntity
	default:
		p.challenge, p.want = leaves, http.StatusUnprocessableEntity
	}
}

// planRefunds chooses refunds: in part, in full, too much, or two concurrent ones of
// which only one is possible.
func (p *purchase) planRefunds(r *rand.Rand) {
	add := func(amount int64, want int) {
		p.refunds = append(p.refunds, &refund{
			exchanges: exchanges{account: p.account, key: client.Key(fmt.Sprintf("%s-refund-%d", p.key, len(p.refunds)))},
			amount:    amount,
			want:      want,
		})
	}
	if p.method == refundFails { // one refund, whose failure later changes no other one
		add(0, http.StatusCreated)
		return
	}
	switch part := 1 + r.Int64N(p.amount-1); r.IntN(12) {
	case 0:
		add(0, http.StatusCreated)
	case 1: // in part, then the rest
		add(part, http.StatusCreated)
		add(0, http.StatusCreated)
	case 2: // in part, then too much
		add(part, http.StatusCreated)
		add(p.amount-part+1, http.StatusUnprocessableEntity)
	case 3:
		add(p.amount/2+1, 0)
		add(p.amount/2+1, 0)
		p.concurrent, p.atLeastOne = true, true
	}
}

// withNewKey returns the same purchase with another key and another card.
func (p *purchase) withNewKey() (*purchase, error) {
	next := &purchase{
		exchanges: exchanges{account: p.account, key: p.key + "-again"},
		email:     "again-" + p.email,
		method:    "pm_card_visa",
		amount:    p.amount,
		want:      http.StatusCreated,
	}
	return next, next.encode()
}

func cancelPath(order string) string { return "/v1/orders/" + order + "/cancel" }

func refundPath(order string) string { return "/v1/orders/" + order + "/refunds" }

func (r *refund) body() []byte {
	if r.amount == 0 {
		return []byte(`{}`)
	}
	return fmt.Appendf(nil, `{"amount":%d}`, r.amount)
}

// meet does what the purchase's customer does about a challenge, and returns the final
// response. It repeats the customer's act until the provider has decided about it.
func (c *customers) meet(ctx context.Context, p *purchase, key client.KeyStatus) (response client.Response) {
	c.count("challenge: " + string(p.challenge))
	for asks := true; asks && ctx.Err() == nil; {
		if p.left = p.challenge == leaves && !p.polls; p.left {
			return response
		}
		if c.awaitMoment(ctx, p, key) {
			c.act(ctx, p, key.Action)
		}
		sent := time.Now()
		response = c.finish(ctx, &p.exchanges, "/v1/orders", p.body)
		if key, asks = requiredAction(response); asks {
			p.checkSecret(sent, key)
		}
	}
	return response
}

// requiredAction reports whether the customer must approve the payment.
func requiredAction(r client.Response) (key client.KeyStatus, asks bool) {
	if r.Status != http.StatusAccepted || json.Unmarshal(r.Body, &key) != nil {
		return key, false
	}
	return key, key.Action != nil && key.Order != nil
}

// awaitMoment waits until the customer acts, and reports whether the key still waits for
// that. Some clients read the key meanwhile, as docs/checkout.md describes.
func (c *customers) awaitMoment(ctx context.Context, p *purchase, key client.KeyStatus) bool {
	act := time.Now().Add(c.moment(5 * time.Second))
	switch p.challenge {
	case approvesLate:
		act = key.CreatedAt.Add(chargeWindow + c.moment(10*time.Second))
	case leaves:
		act = key.CreatedAt.Add(chargeWindow + patience)
	}
	for time.Now().Before(act) {
		if !p.polls {
			return pause(ctx, time.Until(act))
		}
		if !pause(ctx, min(time.Until(act), c.moment(10*time.Second))) {
			return false
		}
		sent := time.Now()
		status, err := c.clients[p.account].GetKey(ctx, p.key)
		if p.checkSecret(sent, status); err != nil || status.State == "finished" || status.State == "expired" {
			return false // also a lost key: the same request restores it
		}
	}
	return true
}

// checkSecret records that a client secret was given out after the charge window (R24).
func (p *purchase) checkSecret(sent time.Time, key client.KeyStatus) {
	if late := sent.Sub(key.CreatedAt) - chargeWindow; key.Action != nil {
		p.lateSecret = max(p.lateSecret, late)
	}
}

// act approves or declines with the client secret, as the customer's browser does.
func (c *customers) act(ctx context.Context, p *purchase, action *client.Action) {
	accepted := false
	switch p.challenge {
	case approvesSoon, approvesLate:
		accepted = c.provider.decide(ctx, action, "approve")
	case declines:
		c.provider.decide(ctx, action, "decline")
	case paysAnew:
		c.provider.decide(ctx, action, "decline")
		pause(ctx, c.moment(5*time.Second))
		accepted = c.provider.stripe.ConfirmAsCustomer(action.PaymentIntentID, "pm_card_mastercard") == nil
	case leaves:
	}
	if accepted {
		p.approved = true
		c.count("charged: " + string(p.challenge))
	}
}

func (c *customers) moment(limit time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.random.Int64N(int64(limit)))
}
