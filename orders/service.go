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

// Service makes and reads orders and refunds. It is safe for concurrent use.
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

// CreateRequest asks for an order, or for a refund of one, under an idempotency
// key.
type CreateRequest struct {
	idempotency.Request // as it was sent; its Validate is set here

	ClientIP netip.Addr // for the audit record; the zero value when unknown
}

// Create makes the order and charges it, or gives the answer that the key has
// already. Errors are [*ValidationError], [*KeyExpiredError], [*ProviderError]
// and the engine's; none of them is stored.
func (s *Service) Create(ctx context.Context, req CreateRequest) (idempotency.Result, error) {
	op := &createOrder{service: s, clientIP: req.ClientIP}
	result, err := s.do(ctx, req, op, func() (err error) {
		op.params, err = DecodeParams(req.Params)
		return err
	})
	switch keyMade(err) {
	case anOrder:
		return result, &KeyExpiredError{OrderID: orderID(req.AccountID, req.Key)}
	case aRefund:
		r, err := findRefundRow(ctx, s.pool, req.AccountID, refundID(req.AccountID, req.Key))
		if err != nil {
			return result, err
		}
		return result, &KeyExpiredError{OrderID: r.OrderID, RefundID: r.ID}
	default:
		return result, err
	}
}

// Refund gives back an order's money, or a part of it, or gives the answer that
// the key has already. Errors are those of Create, and [ErrNotFound] when the
// account has no such order.
func (s *Service) Refund(ctx context.Context, order uuid.UUID, req CreateRequest) (idempotency.Result, error) {
	return s.do(ctx, req, createRefund{service: s, clientIP: req.ClientIP, orderID: order}, func() error {
		_, err := DecodeRefundParams(req.Params)
		return err
	})
}

func (s *Service) do(ctx context.Context, req CreateRequest, op idempotency.Operation, validate func() error) (idempotency.Result, error) {
	req.Validate = validate
	return s.engine.Do(ctx, req.Request, op)
}

// Resume goes on with an abandoned order or refund from its stored parameters,
// without a client.
func (s *Service) Resume(ctx context.Context, accountID, keyID uuid.UUID) (idempotency.Result, error) {
	return s.engine.Resume(ctx, accountID, keyID, s.Operation)
}

// Operation finds the operation that a key was claimed for, by its name, as the
// engine asks for it when it resumes keys without a client.
func (s *Service) Operation(name string) (idempotency.Operation, bool) {
	return named(name, createOrder{service: s}, createRefund{service: s})
}

func named(name string, operations ...idempotency.Operation) (idempotency.Operation, bool) {
	for _, op := range operations {
		if op.Name() == name {
			return op, true
		}
	}
	return nil, false
}

// Get returns the account's order, or [ErrNotFound].
func (s *Service) Get(ctx context.Context, accountID, id uuid.UUID) (Order, error) {
	o, err := find(ctx, s.pool, accountID, id)
	return o.Order, err
}

// MaxPage is the largest number of orders or refunds on a page.
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

// GetRefund returns the refund of the account's order, or [ErrNotFound].
func (s *Service) GetRefund(ctx context.Context, accountID, order, id uuid.UUID) (Refund, error) {
	r, err := findRefundRow(ctx, s.pool, accountID, id)
	if err == nil && r.OrderID != order {
		err = ErrNotFound
	}
	return r.Refund, err
}

// ListRefunds returns up to limit refunds of the account's order, newest first,
// behind the refund with the id after unless that is uuid.Nil, and whether older
// ones follow. An order that is not there is [ErrNotFound]; a refund that is not
// there to begin behind is a [*ValidationError].
func (s *Service) ListRefunds(ctx context.Context, accountID, order uuid.UUID, limit int, after uuid.UUID) ([]Refund, bool, error) {
	if limit < 1 || limit > MaxPage {
		return nil, false, fmt.Errorf("orders: limit must be from 1 to %d", MaxPage)
	}
	if _, err := find(ctx, s.pool, accountID, order); err != nil {
		return nil, false, err
	}
	var cursor *refundRow
	if after != uuid.Nil {
		r, err := findRefundRow(ctx, s.pool, accountID, after)
		if errors.Is(err, ErrNotFound) || err == nil && r.OrderID != order {
			return nil, false, invalid("/after", "must be the id of a refund of this order")
		}
		if err != nil {
			return nil, false, err
		}
		cursor = &r
	}
	found, err := listRefunds(ctx, s.pool, accountID, order, limit+1, cursor) // one more tells whether there are more
	if err != nil {
		return nil, false, err
	}
	return found[:min(len(found), limit)], len(found) > limit, nil
}
