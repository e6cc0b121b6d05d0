package orders

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"example.com/orders-api/payments"
)

// cancelAttempts bounds under how many provider keys one cancel is sent. Stripe
// may keep a 500 under the first (R12).
const cancelAttempts = 3

// fix repairs what can be repaired without a person, and notes what it came to.
// Nothing it does can charge a card that the order's own run would not charge.
//
// It begins at the end, with the intents: the run of a key makes all that has to
// do with its order look young.
func (r *reconciliation) fix(ctx context.Context) {
	for n := range slices.Backward(r.report.Differences) {
		d := &r.report.Differences[n]
		var result string
		var err error
		switch d.Kind {
		case KindKeyStuck:
			result, err = r.resume(ctx, *d)
		case KindIntentLeftBehind:
			result, err = r.cancel(ctx, *d)
		case KindRefundMoved:
			result, err = r.followMoved(ctx, *d)
		default:
			continue
		}
		if err != nil {
			result = err.Error()
		}
		d.Fix, d.Fixed = result, err == nil
		r.service.logger.InfoContext(ctx, "reconcile: fix", "kind", d.Kind, "account_id", d.AccountID, "order_id", d.OrderID,
			"key_id", d.KeyID, "intent_id", d.IntentID, "fixed", d.Fixed, "result", d.Fix)
	}
}

// resume goes on with a stuck key, by the same path as its client's retry.
func (r *reconciliation) resume(ctx context.Context, d Difference) (string, error) {
	if intentID, charged := r.unbooked[d.OrderID]; charged {
		return "", fmt.Errorf("not resumed: the order is charged on %s, and would be once more", intentID)
	}
	if err := ctx.Err(); err != nil { // a run does not end with ctx (R10)
		return "", fmt.Errorf("not resumed: %w", err)
	}
	result, err := r.service.Resume(ctx, d.AccountID, d.KeyID)
	if err != nil {
		return "", fmt.Errorf("resumed without an outcome: %w", err)
	}
	return fmt.Sprintf("resumed: answered %d", result.Response.Status), nil
}

// cancel makes sure that an intent left behind is never charged. It looks again
// before: since it was listed, the client of a lost order may have come back and
// brought it to life.
func (r *reconciliation) cancel(ctx context.Context, d Difference) (string, error) {
	entries, err := r.service.lookUp(ctx, []reference{{d.AccountID, d.OrderID, d.KeyID}})
	if err != nil {
		return "", err
	}
	i, found, err := r.service.readIntent(ctx, d.IntentID)
	switch e := entries[0]; {
	case err != nil:
		return "", err
	case !e.accountKnown:
		return "", errors.New("not cancelled: the account is not ours, so somebody else may be about to use the intent")
	case !found || r.fresh(e, i) || e.judge(i) != KindIntentLeftBehind:
		return "", errors.New("not cancelled: it has moved meanwhile")
	}
	return r.service.cancelLeftBehind(ctx, d)
}

// cancelLeftBehind sends the cancel. Its provider key names the intent: the
// order's own run has one for the intent it knows, and each of several left
// behind needs its own.
func (s *Service) cancelLeftBehind(ctx context.Context, d Difference) (string, error) {
	for attempt := 1; ; attempt++ {
		i, err := s.payments.Cancel(ctx, providerKey(d.KeyID, "-cancel-"+d.IntentID, attempt), d.IntentID)
		failed := asPaymentError(err)
		if failed != nil && failed.Saved500 {
			// The effect may have been made all the same.
			if now, found, unread := s.readIntent(ctx, d.IntentID); unread == nil && found {
				i = now
			}
		}
		switch {
		case i.Status == payments.StatusCanceled:
			return "cancelled", nil
		case failed == nil:
			return "", fmt.Errorf("not cancelled: the intent is %s", i.Status)
		case !failed.Saved500 || attempt == cancelAttempts:
			return "", fmt.Errorf("not cancelled: %w", failed)
		}
	}
}
