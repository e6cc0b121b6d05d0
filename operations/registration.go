package operations

import (
	"context"
	"net/netip"

	"github.com/google/uuid"

	"example.com/orders-api/idempotency"
)

// Request is a request of a client.
type Request struct {
	idempotency.Request

	ClientIP netip.Addr // for the audit record
}

// Registration describes an operation. With a Path, package api serves POST Path and GET
// Path/{id}.
type Registration struct {
	Operation idempotency.Operation

	Path string // such as /v1/credits; "" if package api has other routes for it

	// ID returns the id of the resource that a key creates at the Path (R5).
	ID func(accountID uuid.UUID, key idempotency.Key) uuid.UUID

	// Get returns a resource at the Path, or [ErrNotFound].
	Get func(ctx context.Context, accountID, id uuid.UUID) (any, error)

	// Links, required without a Path, returns what a key's request creates or names.
	Links func(key idempotency.Status) Links

	// RequiredAction, if set, reads the action that a key waits for, or nil.
	RequiredAction func(ctx context.Context, key idempotency.Status) (*ActionRequiredError, error)

	// Resolve, if set, returns the operation that ends an unfinished key for an operator. It must
	// not store a failure while the request can still succeed (R23).
	Resolve func(key idempotency.Status) idempotency.Operation
}

// Resource links to what the request of a key creates or names.
type Resource struct {
	ID   uuid.UUID `json:"id"`
	Href string    `json:"href"`
}

// Links are resources by the member that shows them: order, refund, or [MemberResource].
type Links map[string]*Resource

// MemberResource shows the resource of an operation with a [Registration.Path].
const MemberResource = "resource"

func (r Registration) links(key idempotency.Status) Links {
	if r.Path == "" {
		return r.Links(key)
	}
	id := r.ID(key.AccountID, key.Key)
	return Links{MemberResource: {ID: id, Href: r.Path + "/" + id.String()}}
}
