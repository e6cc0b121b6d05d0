package payments

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Check lists intents and refunds, to try the secret key. rejected means that Stripe refused the
// key, or its permission to read one of them, so that it can never work.
func (c *Client) Check(ctx context.Context) (rejected bool, err error) {
	now := time.Now() // nothing is newer, so the pages are empty
	if _, _, err = c.List(ctx, now, ""); err != nil {
		err = fmt.Errorf("read PaymentIntents: %w", err)
	} else if _, _, err = c.ListAllRefunds(ctx, now, ""); err != nil {
		err = fmt.Errorf("read Refunds: %w", err)
	}
	failed, ok := errors.AsType[*Error](err)
	return ok && failed.KeyRejected(), err
}
