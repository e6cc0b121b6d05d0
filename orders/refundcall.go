package orders

import (
	"context"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/payments"
)

const (
	// kept500 is how long the provider repeats a 500 under our key, and how long
	// it may take to make the refund in spite of it: Stripe keeps keys for a day.
	kept500 = 24 * time.Hour

	// kept500RetryAfter is how long a client waits meanwhile. A webhook may settle
	// it sooner, so a day would be too long.
	kept500RetryAfter = time.Hour

	// sendUnderWay is how long a refund that was sent may take to arrive. A run ends
	// with its lease, within minutes; the rest is for what is on the way.
	sendUnderWay = 10 * time.Minute
)

// refund gives the money back, unless the provider says that this happened
// already. This is the only call of a refund that moves money. It is safe to
// repeat under one provider key only, so there is never a second one; and the
// provider forgets that key after a day (R12). Thus it asks before it acts,
// always: what a lost answer, a forgotten key or a restored database left behind
// looks the same from here, and is in the list of the intent's refunds.
func (g *givingBack) refund(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, g.service.stepTimeout)
	defer cancel()
	if err := g.load(ctx); err != nil {
		return err
	}
	g.made, g.failure, g.kept500 = payments.Refund{}, nil, false

	switch found, failed := g.find(ctx); {
	case failed != nil && g.first():
		return g.noOutcome(ErrProviderUnavailable, failed)
	case failed != nil:
		return g.noOutcome(ErrOutcomeUnknown, failed)
	case found.ID != "":
		return g.follow(found)
	case g.repeats500():
		// Sent again, the key says the same; the list tells when the refund is made.
		return g.noOutcome(ErrOutcomeUnknown, &payments.Error{Code: "saved_500", RetryAfter: kept500RetryAfter})
	case g.closing != nil:
		return g.close()
	default:
		return g.send(ctx)
	}
}

// first says that no refund was sent before.
func (g *givingBack) first() bool { return !g.run.Resumed && !g.sent }

// repeats500 says whether the provider still keeps a 500 under our key.
func (g *givingBack) repeats500() bool {
	return g.row.providerFailedAt != nil && g.run.Now().Sub(*g.row.providerFailedAt) < kept500
}

// send sends the refund and finds out what came of it. It may use three fifths
// of the time that is left; the rest is for asking.
func (g *givingBack) send(ctx context.Context) error {
	first := g.first()
	g.sent = true
	deadline, _ := ctx.Deadline() // of the step, so there is one
	sending, cancel := context.WithTimeout(ctx, time.Until(deadline)*3/5)
	defer cancel()
	params := payments.RefundParams{
		IntentID: g.row.intentID,
		Amount:   g.row.Amount,
		Currency: g.row.Currency,
		Metadata: g.row.metadata(g.run.AccountID, g.run.KeyID),
	}
	if g.row.Reason != nil {
		params.Reason = *g.row.Reason
	}
	made, err := g.service.payments.Refund(sending, providerKey(g.run.KeyID, "-refund", 1), params)
	failed := providerError(err)
	switch {
	case failed == nil:
		return g.follow(made)
	case failed.Outcome == payments.NotRun && first:
		return g.noOutcome(ErrProviderUnavailable, failed)
	}

	// In doubt the list tells, and before a refusal is believed: our own refund
	// may be what stands in the way of this one (R12, R23).
	found, unread := g.find(ctx)
	switch {
	case unread != nil:
		return g.noOutcome(ErrOutcomeUnknown, unread)
	case found.ID != "":
		return g.follow(found)
	case failed.Saved500:
		now := g.run.Now()
		g.row.providerFailedAt, g.kept500 = &now, true
		return nil
	case failed.Outcome == payments.Refused, failed.Outcome == payments.Declined, failed.UnexpectedState:
		g.fail(refusedBy(failed), failed)
		return nil
	default:
		return g.noOutcome(ErrOutcomeUnknown, failed) // it may yet arrive
	}
}

// find looks for the refund at the provider. One without an id says that there
// is none.
func (g *givingBack) find(ctx context.Context) (payments.Refund, *payments.Error) {
	var found payments.Refund
	err := g.service.payments.ListRefunds(ctx, g.row.intentID, func(r payments.Refund) bool {
		// Whatever its amount: follow looks at that, and raises the alarm. Of two,
		// which reconcile reports, the one that holds money counts.
		if r.Metadata["refund_id"] == g.row.ID.String() && (found.ID == "" || RefundStatus(found.Status).Void()) {
			found = r
		}
		return true
	})
	return found, providerError(err)
}

// follow does what the refund at the provider says.
func (g *givingBack) follow(made payments.Refund) error {
	switch {
	case !g.row.madeAs(made):
		return g.noOutcome(ErrOutcomeUnknown, &payments.Error{Misuse: true, Code: "not_our_refund"})
	case RefundStatus(made.Status).Void():
		g.fail(refundFailed(made), nil)
	}
	g.made = made
	return nil
}

// closing is how an operator ends a refund: what is known of the key's last run
// before this one.
type closing struct {
	attempt int
	quiet   bool // it began long enough ago that nothing it sent is under way
}

// close fails the refund, which the provider does not have. What was sent moments
// ago may still be on its way there; then it is too early (R23).
func (g *givingBack) close() error {
	if !g.closing.quiet || g.run.Attempt != g.closing.attempt+1 {
		return g.noOutcome(ErrOutcomeUnknown, &payments.Error{Code: "sent_moments_ago", RetryAfter: sendUnderWay})
	}
	g.fail(closedRefund(), nil)
	return nil
}

// load makes the refund known to a call.
func (g *givingBack) load(ctx context.Context) error {
	if g.row.ID != uuid.Nil {
		return nil
	}
	var err error
	g.row, err = findRefundRow(ctx, g.service.pool, g.run.AccountID, refundID(g.run.AccountID, g.run.Key))
	return err
}

func (g *givingBack) noOutcome(kind error, failed *payments.Error) error {
	return g.service.noOutcome(kind, failed, g.about()...)
}

// fail notes why the refund is not made and never will be. cause, when given,
// may say that the fault is our own, so operators hear of it.
func (g *givingBack) fail(why failure, cause *payments.Error) {
	g.failure = &why
	g.service.noteMisuse(cause, g.about()...)
}

func (g *givingBack) about() []any {
	return []any{"order_id", g.row.OrderID, "refund_id", g.row.ID, "key_id", g.run.KeyID}
}
