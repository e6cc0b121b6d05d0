package shop

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orders-api/client"
)

// attempt sends the stored bytes with the stored key, and records a final response (rules 1 and 2 of
// package client). After any other response, the client repeats the request until s.Patience is over
// (rules 3 and 4).
func (s *Shop) attempt(ctx context.Context, p purchase) (_ purchase, clientSecret string, err error) {
	if err = s.begin(ctx, &p); errors.Is(err, pgx.ErrNoRows) {
		return p, "", nil // another attempt has just ended the payment, so the page repeats its request
	} else if err != nil {
		return p, "", err
	}
	limited, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	if time.Since(p.RequestedAt) > givenUp {
		_, err = s.Orders.GetKey(limited, p.Key)
	}
	tooLate := isNotFound(err)
	var response client.Response
	if err == nil {
		response, err = s.Orders.Do(limited, client.Request{Key: p.Key, Path: "/v1/orders", Body: p.Request})
	}
	ctx = context.WithoutCancel(ctx) // the result is recorded even if the shop is shutting down
	action, mustAct := errors.AsType[*client.ActionRequiredError](err)
	problem, rejected := errors.AsType[*client.Problem](err)
	switch {
	case tooLate:
		p, err = s.stop(ctx, p)
	case err == nil:
		var order client.Order
		if err = json.Unmarshal(response.Body, &order); err == nil {
			p, err = s.finish(ctx, p, order)
		}
	case mustAct: // after the customer's action, the page sends the same request again
		clientSecret, err = action.Action.ClientSecret, nil
	case rejected && problem.Retry == client.RetryNewKey:
		// The old key can no longer charge, and the customer decides whether to pay again.
		p, err = s.reopen(ctx, p, client.NewKey(), "Nothing was charged. "+problem.Detail)
	case rejected && problem.Retry == client.RetryCorrected && p.Attempts == 1:
		p, err = s.reopen(ctx, p, p.Key, correction(problem)) // the only attempt did not use the key
	case rejected && problem.Retry == client.RetryNever:
		p, err = s.resolve(ctx, p, problem)
	default:
		// The outcome is unknown (rule 5), even if this attempt was rejected, because an earlier one
		// may have succeeded. The page or Run sends the request again.
		s.Logger.WarnContext(ctx, "shop: outcome unknown", "purchase", p.ID, "attempts", p.Attempts, "error", err)
		err = nil
	}
	return p, clientSecret, err
}

// givenUp is the age after which a customer no longer expects a charge (R24, charge window). An older
// request is sent only if the API knows its key; otherwise the shop's staff decide. A failover may have
// lost the key after the charge, and a retry is certain to find that charge only for 23 hours.
const givenUp = 22 * time.Hour

func isNotFound(err error) bool {
	problem, rejected := errors.AsType[*client.Problem](err)
	return rejected && problem.Status == http.StatusNotFound
}

// correction returns the message for the customer. If no member of the request is invalid, the mistake is
// the shop's own.
func correction(problem *client.Problem) string {
	if len(problem.Errors) == 0 {
		return "Nothing was charged. The shop cannot take payments at the moment."
	}
	return "Nothing was charged. Please correct " + strings.TrimPrefix(problem.Errors[0].Pointer, "/") + ": " + problem.Errors[0].Detail + "."
}

// resolve handles a request that is rejected for good. The problem may name the order of the key, if the shop
// has missed its response, or an earlier order of this purchase, because the shop or the API has lost the key.
// Without such an order, the purchase stops. While the payment of an earlier order has not ended, the purchase
// waits, because a failure frees the reference.
func (s *Shop) resolve(ctx context.Context, p purchase, problem *client.Problem) (purchase, error) {
	s.Logger.ErrorContext(ctx, "shop: order rejected", "purchase", p.ID, "order", problem.OrderID, "error", problem)
	if problem.OrderID == "" {
		return s.stop(ctx, p)
	}
	limited, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	switch order, err := s.Orders.GetOrder(limited, problem.OrderID); {
	case isNotFound(err):
		return s.stop(ctx, p)
	case err == nil && order.Status == "payment_failed" && problem.Type != "/problems/order-exists":
		// This is the key's own order, which can never be charged, and the key never executes again.
		return s.reopen(ctx, p, client.NewKey(), "Nothing was charged. Your payment failed.")
	case err != nil || slices.Contains([]string{"pending", "requires_action", "payment_failed"}, order.Status):
		s.Logger.WarnContext(ctx, "shop: order not final", "purchase", p.ID, "order", problem.OrderID, "status", order.Status, "error", err)
		return p, nil // the next attempt sends the request again
	default:
		return s.finish(ctx, p, order)
	}
}

// Run handles events as they arrive, and finishes the purchases of customers who have left, until ctx ends.
func (s *Shop) Run(ctx context.Context) {
	for tick := time.Tick(s.Idle / 3); ; {
		if err := errors.Join(s.HandleEvents(ctx), s.RunOnce(ctx)); err != nil && ctx.Err() == nil {
			s.Logger.ErrorContext(ctx, "shop: purchases not finished", "error", err)
		}
		select {
		case <-s.arrived:
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

// RunOnce makes one attempt for each purchase that has been idle for some time, in case its event is late.
// That time grows with each attempt, because many customers never approve their payment.
func (s *Shop) RunOnce(ctx context.Context) error {
	rows, _ := s.Pool.Query(ctx, "SELECT"+columns+`FROM shop.purchases
 WHERE state = 'paying' AND attempted_at < now() - $1::interval * least(attempts + 1, 60) ORDER BY attempted_at LIMIT 100`, s.Idle)
	abandoned, err := pgx.CollectRows(rows, pgx.RowToStructByName[purchase])
	for _, p := range abandoned {
		_, _, failed := s.attempt(ctx, p)
		err = errors.Join(err, failed)
	}
	return err
}
