package orders

import (
	"context"
	"encoding/json"
	"fmt"

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

// Registrations returns the registered operations.
func (s *Service) Registrations() []Registration { return s.registrations }

// Execute executes a request of a registered operation.
func (s *Service) Execute(ctx context.Context, req Request, op idempotency.Operation) (idempotency.Result, error) {
	return s.engine.Do(ctx, req.Request, op)
}

// Resource links to what the request of a key creates.
type Resource struct {
	ID   uuid.UUID `json:"id"`
	Href string    `json:"href"`
}

// ResourceOf returns the resource that a key of a registered operation creates, or nil
// if the operation is not registered. [ResourcesOf] is for orders and refunds.
func (s *Service) ResourceOf(key idempotency.Status) *Resource {
	for _, registered := range s.registrations {
		if registered.Operation.Name() == key.Operation {
			id := registered.ID(key.AccountID, key.Key)
			return &Resource{ID: id, Href: registered.Path + "/" + id.String()}
		}
	}
	return nil
}

// Decoder reads the members of a request as [DecodeParams] does: it is strict, and it
// collects all errors. Each method reads one required member.
type Decoder struct {
	members map[string]json.RawMessage
	known   []string
	reader  reader
	err     error
}

// NewDecoder returns a Decoder of canonical JSON.
func NewDecoder(canonical []byte) *Decoder {
	d := &Decoder{}
	if err := json.Unmarshal(canonical, &d.members); err != nil {
		d.err = fmt.Errorf("decode request: %w", err)
	}
	return d
}

// Text reads a string of minimum to maximum characters without control characters.
func (d *Decoder) Text(name string, minimum, maximum int) string {
	d.known = append(d.known, name)
	return d.reader.text(d.members, "", name, required, minimum, maximum)
}

// Integer reads an integer from 1 to maximum.
func (d *Decoder) Integer(name string, maximum int64) int64 {
	d.known = append(d.known, name)
	return d.reader.integer(d.members, "", name, required, maximum)
}

// Err returns a [*ValidationError] if a member is missing, wrong or unknown.
func (d *Decoder) Err() error {
	if d.err != nil {
		return d.err
	}
	d.reader.unknown(d.members, "", d.known...)
	if len(d.reader.errs) > 0 {
		return &ValidationError{Fields: d.reader.errs}
	}
	return nil
}
