package api

import (
	"net/http"

	"example.com/orders-api/idempotency"
)

// What bounds the requests that are not orders or refunds: those have places in
// the engine, see idempotency.Config.
const (
	// maxWebhooks is how many deliveries of the provider are taken at once. Each
	// may go on with an order, and who is turned away comes again.
	maxWebhooks = 100
)

// reading gives a request that only reads its place among all that read.
func reading(reads *idempotency.Gate) func(handlerFunc) handlerFunc {
	return func(next handlerFunc) handlerFunc {
		return func(w http.ResponseWriter, r *http.Request) error {
			place, err := reads.Enter(accountID(r.Context()))
			if err != nil {
				return err
			}
			defer place.Leave()
			return next(w, r)
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
			return idempotency.ErrOverloaded
		}
		defer func() { <-slots }()
		return next(w, r)
	}
}
