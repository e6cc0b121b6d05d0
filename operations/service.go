package operations

import (
	"context"
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
func (s *Service) Links(key idempotency.Status) Links {
	registered, known := s.find(key)
	if !known {
		return nil
	}
	return registered.links(key)
}

// RequiredAction is [Registration.RequiredAction], and nil for an unknown operation.
func (s *Service) RequiredAction(ctx context.Context, key idempotency.Status) (*ActionRequiredError, error) {
	registered, _ := s.find(key)
	if registered.RequiredAction == nil {
		return nil, nil
	}
	return registered.RequiredAction(ctx, key)
}

func (s *Service) find(key idempotency.Status) (Registration, bool) {
	i := slices.IndexFunc(s.registrations, func(r Registration) bool { return r.Operation.Name() == key.Operation })
	if i < 0 {
		return Registration{}, false
	}
	return s.registrations[i], true
}
