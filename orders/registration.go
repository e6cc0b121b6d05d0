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

	// Resolve, if set, returns the operation with which an operator ends an unfinished key, see
	// [Service.Resolve]. It continues from the recovery points of Operation. It must not store a
	// failure while the request can still succeed (R23).
	Resolve func(key idempotency.Status) idempotency.Operation

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

// Registrations are operations, each with another name.
type Registrations []Registration

// ResourceOf returns the resource that a key of one of the operations creates, or nil.
// [ResourcesOf] is for orders and refunds.
func (r Registrations) ResourceOf(key idempotency.Status) *Resource {
	registered, known := r.find(key.Operation)
	if !known {
		return nil
	}
	id := registered.ID(key.AccountID, key.Key)
	return &Resource{ID: id, Href: registered.Path + "/" + id.String()}
}

func (r Registrations) find(operation string) (Registration, bool) {
	for _, registered := range r {
		if registered.Operation.Name() == operation {
			return registered, true
		}
	}
	return Registration{}, false
}
