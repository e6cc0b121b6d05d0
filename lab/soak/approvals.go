//go:build unix

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"example.com/orders-api/client"
)

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
