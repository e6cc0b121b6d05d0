package api

import (
	"context"
	"net/http"

	"example.com/orders-api/internal/limiter"
)

// What bounds the requests that are not orders or refunds: those have places in
// the engine, see idempotency.Config.
const (
	// maxWebhooks is how many deliveries of the provider are taken at once. Each
	// may go on with an order, and who is turned away comes again.
	maxWebhooks = 100
)

// limitReads executes a handler that only reads with a permit of the limiter.
func limitReads(l *limiter.Limiter) func(handlerFunc) handlerFunc {
	return func(next handlerFunc) handlerFunc {
		return func(w http.ResponseWriter, r *http.Request) error {
			return l.Do(r.Context(), accountID(r.Context()), func(ctx context.Context) error { return next(w, r.WithContext(ctx)) })
		}
	}
}

// atMost lets so many requests in at once.
func atMost(limit int, next handlerFunc) handlerFunc {
	slots := make(chan struct{}, limit)
	return func(w http.ResponseWriter, r *http.Request) error {
		select {
		case slots <- struct{}{}:
		default:
			return limiter.ErrOverloaded
		}
		defer func() { <-slots }()
		return next(w, r)
	}
}
