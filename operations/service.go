package operations

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
)

// Service continues, describes and resolves the keys of all registered operations.
type Service struct {
	engine        *idempotency.Engine
	pool          *pgxpool.Pool
	registrations []Registration
}

// New returns a Service without operations.
func New(engine *idempotency.Engine, pool *pgxpool.Pool) *Service {
	return &Service{engine: engine, pool: pool}
}

// Register adds operations, before the Service is used.
func (s *Service) Register(added ...Registration) {
	s.registrations = append(s.registrations, added...)
}

// Registrations returns all operations.
func (s *Service) Registrations() []Registration { return slices.Clone(s.registrations) }

// Operations returns all operations for the engine.
func (s *Service) Operations() (list []idempotency.Operation) {
	for _, registered := range s.registrations {
		list = append(list, registered.Operation)
	}
	return list
}

// Resume continues the request of an unfinished key from its stored parameters.
func (s *Service) Resume(ctx context.Context, accountID, keyID uuid.UUID) (idempotency.Result, error) {
	return s.engine.Resume(ctx, accountID, keyID, s.Operations())
}

// Links returns what a key's request creates or names, nil for an unknown operation (R18).
func (s *Service) Links(key idempotency.StoredKey) Links {
	registered, known := s.find(key)
	if !known {
		return nil
	}
	return registered.links(key)
}

// RequiredAction is [Registration.RequiredAction], and nil for an unknown operation.
func (s *Service) RequiredAction(ctx context.Context, key idempotency.StoredKey) (*ActionRequiredError, error) {
	registered, _ := s.find(key)
	if registered.RequiredAction == nil {
		return nil, nil
	}
	return registered.RequiredAction(ctx, key)
}

func (s *Service) find(key idempotency.StoredKey) (Registration, bool) {
	i := slices.IndexFunc(s.registrations, func(r Registration) bool { return r.Operation.Name() == key.Operation })
	if i < 0 {
		return Registration{}, false
	}
	return s.registrations[i], true
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
	Links func(key idempotency.StoredKey) Links

	// RequiredAction, if set, reads the action that a key waits for, or nil.
	RequiredAction func(ctx context.Context, key idempotency.StoredKey) (*ActionRequiredError, error)

	// Resolve, if set, returns the operation that ends an unfinished key for an operator. It must
	// not store a failure while the request can still succeed (R23).
	Resolve func(key idempotency.StoredKey) idempotency.Operation
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

func (r Registration) links(key idempotency.StoredKey) Links {
	if r.Path == "" {
		return r.Links(key)
	}
	id := r.ID(key.AccountID, key.Key)
	return Links{MemberResource: {ID: id, Href: r.Path + "/" + id.String()}}
}

// KeyStatus is the status of a key.
type KeyStatus struct {
	idempotency.StoredKey
	Expired  bool            // reaped, or ended by an operator: only operation, path and times are known
	Response *StoredResponse // nil if none is stored
	Links    Links           // none if an operator expired the key of lost rows
}

// StoredResponse describes a stored response.
type StoredResponse struct {
	Status   int     `json:"status"`
	Type     *string `json:"type"` // of a problem
	Location *string `json:"location"`
}

// StateExpired is the state of a key that was reaped.
const StateExpired = "expired"

// State is [idempotency.StoredKey.State] or [StateExpired].
func (k KeyStatus) State() string {
	if k.Expired {
		return StateExpired
	}
	return k.StoredKey.State()
}

// Settled reports whether no run is expected.
func (k KeyStatus) Settled() bool {
	unsettled := []string{idempotency.StateInProgress, idempotency.StateWaiting, idempotency.StateActionRequired}
	return !slices.Contains(unsettled, k.State())
}

// KeyStatus returns the status of a key, or [idempotency.ErrNotFound] if it was never used.
func (s *Service) KeyStatus(ctx context.Context, accountID uuid.UUID, key idempotency.Key) (KeyStatus, error) {
	status, response, err := s.engine.Lookup(ctx, accountID, key)
	expired, reaped := errors.AsType[*idempotency.KeyExpiredError](err)
	if reaped {
		status, err = expired.Key, nil
	}
	if err != nil {
		return KeyStatus{}, err
	}
	found := KeyStatus{StoredKey: status, Expired: reaped, Response: describe(response)}
	if !reaped || !expired.Lost {
		found.Links = s.Links(status)
	}
	return found, nil
}

func describe(response idempotency.Response) *StoredResponse {
	if response.Status == 0 {
		return nil
	}
	stored := &StoredResponse{Status: response.Status}
	if location, ok := response.Headers["Location"]; ok {
		stored.Location = &location
	}
	var p Problem
	if response.Headers["Content-Type"] == problemMediaType && json.Unmarshal(response.Body, &p) == nil {
		stored.Type = &p.Type
	}
	return stored
}
