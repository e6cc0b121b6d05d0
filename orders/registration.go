package orders

import (
	"context"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
)

// Registration adds an operation of another package. Its keys are then resumed as those
// of an order are, and package api serves its two routes: POST Path and GET Path/{id}.
type Registration struct {
	Operation idempotency.Operation

	Path string // such as /v1/credits

	// ID returns the id of the resource that a key creates (R5).
	ID func(accountID uuid.UUID, key idempotency.Key) uuid.UUID

	// Get returns a resource of the account, or [ErrNotFound].
	Get func(ctx context.Context, accountID, id uuid.UUID) (any, error)
}

// Resource links to what the request of a key creates.
type Resource struct {
	ID   uuid.UUID `json:"id"`
	Href string    `json:"href"`
}

// ResourceOf returns the resource that a key of a registered operation creates, or nil
// if the operation is not registered. [ResourcesOf] is for orders and refunds.
func (s *Service) ResourceOf(key idempotency.Status) *Resource {
	for _, registered := range s.Registrations {
		if registered.Operation.Name() == key.Operation {
			id := registered.ID(key.AccountID, key.Key)
			return &Resource{ID: id, Href: registered.Path + "/" + id.String()}
		}
	}
	return nil
}
