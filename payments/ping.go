package payments

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// APIVersion is the version of Stripe's API that the client uses.
const APIVersion = stripe.APIVersion

// ServerInfo is metadata of the provider's response.
type ServerInfo struct {
	APIVersion string    // of the response, "" if it names none
	Date       time.Time // by the provider's clock, in whole seconds; zero if it names none
}

// Ping checks that the provider responds and accepts the API key. It lists one intent.
func (c *Client) Ping(ctx context.Context) (ServerInfo, error) {
	var info ServerInfo
	err := c.run(ctx, call{name: "ping"}, func(ctx context.Context) error {
		it := c.intents.List(&stripe.PaymentIntentListParams{
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
		info.APIVersion = printable(header.Get("Stripe-Version"))
		info.Date, _ = http.ParseTime(header.Get("Date"))
		return nil
	})
	return info, err
}
