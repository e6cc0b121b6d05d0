package orders

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// Service makes and reads orders. It is safe for concurrent use.
type Service struct {
	engine      *idempotency.Engine
	pool        *pgxpool.Pool
	payments    *payments.Client
	stepTimeout time.Duration
	logger      *slog.Logger
}

// Config is what a [Service] works with. All of it is needed.
type Config struct {
	Engine   *idempotency.Engine
	Pool     *pgxpool.Pool
	Payments *payments.Client

	// StepTimeout bounds one step's calls to the provider, resends included
	// (R9: less than a lease).
	StepTimeout time.Duration

	Logger *slog.Logger
}

// New returns a Service, or an error that names what is missing.
func New(config Config) (*Service, error) {
	switch {
	case config.Engine == nil:
		return nil, errors.New("orders: no engine")
	case config.Pool == nil:
		return nil, errors.New("orders: no pool")
	case config.Payments == nil:
		return nil, errors.New("orders: no payments client")
	case config.StepTimeout <= 0:
		return nil, errors.New("orders: StepTimeout must be positive")
	case config.Logger == nil:
		return nil, errors.New("orders: no logger")
	}
	return &Service{
		engine:      config.Engine,
		pool:        config.Pool,
		payments:    config.Payments,
		stepTimeout: config.StepTimeout,
		logger:      config.Logger,
	}, nil
}

// CreateRequest asks for an order under an idempotency key.
type CreateRequest struct {
	AccountID uuid.UUID
	Key       idempotency.Key
	Method    string
	Path      string
	Params    []byte     // canonical JSON, see idempotency.Canonicalize
	ClientIP  netip.Addr // for the audit record; the zero value when unknown

	Wait    time.Duration // for a run that holds the key, see idempotency.Request
	Claimed func()        // called when the order is sure to be finished, likewise; may be nil
}

// Create makes the order and charges it, or gives the answer that the key has
// already. Errors are [*ValidationError], [*KeyExpiredError], [*ProviderError]
// and the engine's; none of them is stored.
func (s *Service) Create(ctx context.Context, req CreateRequest) (idempotency.Result, error) {
	_, invalid := DecodeParams(req.Params)
	result, err := s.engine.Do(ctx, idempotency.Request{
		AccountID: req.AccountID,
		Key:       req.Key,
		Method:    req.Method,
		Path:      req.Path,
		Params:    req.Params,
		Invalid:   invalid,
		Wait:      req.Wait,
		Claimed:   req.Claimed,
	}, createOrder{service: s, clientIP: req.ClientIP})
	if keyExpired(err) {
		return result, &KeyExpiredError{OrderID: orderID(req.AccountID, req.Key)}
	}
	return result, err
}

// Resume goes on with an abandoned order from its stored parameters, without a
// client.
func (s *Service) Resume(ctx context.Context, accountID, keyID uuid.UUID) (idempotency.Result, error) {
	return s.engine.Resume(ctx, accountID, keyID, s.Operation)
}

// Operation finds the operation that a key was claimed for, by its name, as the
// engine asks for it when it resumes keys without a client.
func (s *Service) Operation(name string) (idempotency.Operation, bool) {
	op := createOrder{service: s}
	return op, name == op.Name()
}

// Get returns the account's order, or [ErrNotFound].
func (s *Service) Get(ctx context.Context, accountID, id uuid.UUID) (Order, error) {
	o, err := find(ctx, s.pool, accountID, id)
	return o.Order, err
}

// MaxPage is the largest number of orders that List returns at once.
const MaxPage = 100

// List returns up to limit orders of the account, newest first, behind the
// order with the id after unless that is uuid.Nil, and whether older ones
// follow. An order that is not there to begin behind is [ErrNotFound].
func (s *Service) List(ctx context.Context, accountID uuid.UUID, limit int, after uuid.UUID) ([]Order, bool, error) {
	if limit < 1 || limit > MaxPage {
		return nil, false, fmt.Errorf("orders: limit must be from 1 to %d", MaxPage)
	}
	var cursor *row
	if after != uuid.Nil {
		o, err := find(ctx, s.pool, accountID, after)
		if err != nil {
			return nil, false, err
		}
		cursor = &o
	}
	rows, err := list(ctx, s.pool, accountID, limit+1, cursor) // one more tells whether there are more
	if err != nil {
		return nil, false, err
	}
	page := make([]Order, 0, limit)
	for _, o := range rows[:min(len(rows), limit)] {
		page = append(page, o.Order)
	}
	return page, len(rows) > limit, nil
}
