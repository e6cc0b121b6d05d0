package orders

import (
	"context"
	"time"

	"example.com/orders-api/payments"
)

// clockSkew is how far the provider's clock may be from the database's.
const clockSkew = 5 * time.Minute

// findIntent searches the provider's list for the intent of an order whose
// provider key may have expired. An intent without an id means that there is none.
// A retry that created one may have been sent at any time until now.
func (r *orderRun) findIntent(ctx context.Context) (payments.Intent, *payments.Error) {
	var found payments.Intent
	err := r.payments.List(ctx, r.order.CreatedAt.Add(-clockSkew), r.Now().Add(clockSkew), func(intent payments.Intent) bool {
		// Whatever its amount is: confirmIntent verifies it.
		ours := intent.Metadata["order_id"] == r.order.ID.String()
		if ours && (found.ID == "" || precedence(intent.Status) > precedence(found.Status)) {
			found = intent
		}
		return found.Status != payments.StatusSucceeded
	})
	return found, asPaymentError(err)
}

// precedence chooses between several intents of one order: succeeded, then in
// progress, then terminal (a client may have received that result before this
// database was restored), then unconfirmed.
func precedence(status payments.Status) int {
	switch status {
	case payments.StatusSucceeded:
		return 3
	case payments.StatusCanceled, payments.StatusRequiresPaymentMethod:
		return 1
	case payments.StatusRequiresConfirmation:
		return 0
	default:
		return 2
	}
}
