package payments

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// APIVersion is the version of Stripe's API that the client speaks.
const APIVersion = stripe.APIVersion

// Probe is what an answer tells of the provider itself.
type Probe struct {
	APIVersion string    // in which it answered, "" when it did not say
	Date       time.Time // by the provider's clock, in whole seconds; zero when it did not say
}

// Probe asks for one intent, whichever, to learn whether the provider answers and
// takes our key. Like [Client.Get] it has no effect.
func (c *Client) Probe(ctx context.Context) (Probe, error) {
	var learnt Probe
	err := c.run(ctx, call{name: "probe"}, func(ctx context.Context) error {
		it := c.api.List(&stripe.PaymentIntentListParams{
			ListParams: stripe.ListParams{Context: ctx, Single: true, Limit: stripe.Int64(1)},
		})
		if err := it.Err(); err != nil {
			return err
		}
		list := it.PaymentIntentList()
		if list.Data == nil {
			return fmt.Errorf("%w: not a list", ErrUnreadable)
		}
		header := list.LastResponse.Header
		learnt.APIVersion = printable(header.Get("Stripe-Version"))
		learnt.Date, _ = http.ParseTime(header.Get("Date")) // zero when it is not there
		return nil
	})
	return learnt, err
}
