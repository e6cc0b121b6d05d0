package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"

	"example.com/orders-api/client"
	"example.com/orders-api/cmd/internal/app"
	"example.com/orders-api/cmd/playground/internal/devservices"
	"example.com/orders-api/examples/shop"
)

// shopExtension adds the example shop.
type shopExtension struct{}

func (shopExtension) add(ctx context.Context, s *server) error {
	storefront, err := newShop(ctx, s)
	if err != nil {
		s.line("Shop", "off: "+err.Error())
		return nil
	}
	s.line("Shop", s.base+shop.Path+"   buy something as a customer")
	s.jobs = append(s.jobs, func(ctx context.Context) error {
		storefront.Run(ctx)
		return nil
	})
	next := s.HTTP.Handler
	s.HTTP.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == shop.Path || strings.HasPrefix(r.URL.Path, shop.Path+"/") {
			storefront.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
	return nil
}

func newShop(ctx context.Context, s *server) (*shop.Shop, error) {
	config := shop.Config{Pool: s.App.Pool, Logger: s.logger, PublishableKey: os.Getenv("SHOP_STRIPE_PUBLISHABLE_KEY")}
	if s.services.Stripe != nil {
		config.PublishableKey, config.FakeStripe = "pk_test_fake", s.config.APIBase
	}
	if !strings.HasPrefix(config.PublishableKey, "pk_test_") {
		return nil, errors.New("set SHOP_STRIPE_PUBLISHABLE_KEY to the publishable test key, pk_test_…")
	}
	if s.config.EventsURL == "" {
		secret := devservices.EventsSecret()
		s.config.EventsURL, s.config.EventsSecret = app.Secret(s.base+shop.EventsPath), secret
		s.App.Orders.Events = true
		config.EventSecrets = []string{string(secret)}
	}
	var err error
	if config.Orders, err = client.New(client.Config{BaseURL: s.base, APIKey: s.apiKey}); err != nil {
		return nil, err
	}
	return shop.New(config), shop.Migrate(ctx, s.App.Pool)
}
