package client_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/client"
	"example.com/orders-api/internal/foreigntest"
)

// A server that is not the API can neither hold a call longer than its limit, nor answer it.
func TestClient_foreignServer(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]struct {
		success int
		do      func(context.Context, *client.Client) error
	}{
		"a write": {http.StatusCreated, func(ctx context.Context, c *client.Client) error {
			_, err := c.CreateOrder(ctx, key, orderParams())
			return err
		}},
		"a read": {http.StatusOK, func(ctx context.Context, c *client.Client) error {
			_, err := c.ListOrders(ctx, client.OrderFilter{})
			return err
		}},
	} {
		for answer, respond := range foreigntest.Answers(t, call.success) {
			t.Run(name+", "+answer, func(t *testing.T) {
				t.Parallel()
				f := newFixtureWith(t, func(c *client.Config) { c.Timeout = 200 * time.Millisecond }, respond)
				ctx, cancel := context.WithCancel(t.Context())
				f.SetSleep(func(context.Context, time.Duration) error {
					cancel()
					return context.Canceled
				})
				start := time.Now()
				require.Error(t, call.do(ctx, f.Client))
				require.Less(t, time.Since(start), foreigntest.Held)
				require.Len(t, f.observed, 1)
				require.Error(t, f.observed[0].Err, "no response, whatever its status")
			})
		}
	}
}
