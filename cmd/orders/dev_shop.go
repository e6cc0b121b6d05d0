package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"

	"example.com/orders-api/client"
	"example.com/orders-api/examples/shop"
)

// withShop adds the example shop to the server's handler. To delete the example, delete its
// folder, this file, its test and the call.
func (d devRun) withShop(ctx context.Context, group *errgroup.Group, s *server, base, apiKey string) http.Handler {
	storefront, err := d.newShop(ctx, s, base, apiKey)
	if err != nil {
		fmt.Fprintf(d.stdout, "Shop         off: %v\n\n", err)
		return s.http.Handler
	}
	fmt.Fprintf(d.stdout, "Shop         %s%s   buy something as a customer\n\n", base, shop.Path)
	group.Go(func() error {
		storefront.Run(ctx)
		return nil
	})
	next := s.http.Handler
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == shop.Path || strings.HasPrefix(r.URL.Path, shop.Path+"/") {
			storefront.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (d devRun) newShop(ctx context.Context, s *server, base, apiKey string) (*shop.Shop, error) {
	config := shop.Config{Pool: s.pool, Logger: d.logger, PublishableKey: os.Getenv("SHOP_STRIPE_PUBLISHABLE_KEY")}
	if d.services.Stripe != nil {
		config.PublishableKey, config.FakeStripe = "pk_test_fake", d.config.APIBase
	}
	if !strings.HasPrefix(config.PublishableKey, "pk_test_") {
		return nil, errors.New("set SHOP_STRIPE_PUBLISHABLE_KEY to the publishable test key, pk_test_…")
	}
	var err error
	if config.Orders, err = client.New(client.Config{BaseURL: base, APIKey: apiKey}); err != nil {
		return nil, err
	}
	return shop.New(config), shop.Migrate(ctx, s.pool)
}
