package orders

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// Service creates and reads orders and refunds. It is safe for concurrent use.
type Service struct {
	engine       *idempotency.Engine
	pool         *pgxpool.Pool
	payments     *payments.Client
	stepTimeout  time.Duration
	chargeWindow time.Duration
	logger       *slog.Logger

	registrations []Registration
}

// Config configures a [Service]. All fields but Registrations are required.
type Config struct {
	Engine   *idempotency.Engine
	Pool     *pgxpool.Pool
	Payments *payments.Client

	// StepTimeout bounds the provider calls of one step, retries included (R9).
	StepTimeout time.Duration

	// ChargeWindow is the age from which an order is not charged any more (R9, R24).
	ChargeWindow time.Duration

	Logger *slog.Logger

	// Registrations are operations of other packages.
	Registrations []Registration
}

// New returns a Service, or an error that names a missing field.
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
	case config.ChargeWindow <= 0:
		return nil, errors.New("orders: ChargeWindow must be positive")
	case config.Logger == nil:
		return nil, errors.New("orders: no logger")
	}
	return &Service{
		engine:       config.Engine,
		pool:         config.Pool,
		payments:     config.Payments,
		stepTimeout:  config.StepTimeout,
		chargeWindow: config.ChargeWindow,
		logger:       config.Logger,

		registrations: config.Registrations,
	}, nil
}

// stepContext bounds a step's provider calls. Its deadline has no monotonic time, which
// stops while a machine is suspended: another run may have taken over by then.
func (s *Service) stepContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, time.Now().Add(s.stepTimeout).Round(0))
}

// sendContext bounds a call that moves money to three fifths of the step's remaining
// time. The rest is for reading the result.
func sendContext(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	return context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)*2/5))
}

// Resume continues the request of an unfinished key from its stored parameters.
func (s *Service) Resume(ctx context.Context, accountID, keyID uuid.UUID) (idempotency.Result, error) {
	return s.engine.Resume(ctx, accountID, keyID, s.Operation)
}

// Operation returns the operation that is stored with a key.
func (s *Service) Operation(name string) (idempotency.Operation, bool) {
	operations := []idempotency.Operation{createOrder{Service: s}, createRefund{Service: s}}
	for _, registered := range s.registrations {
		operations = append(operations, registered.Operation)
	}
	return byName(name, operations...)
}

func byName(name string, operations ...idempotency.Operation) (idempotency.Operation, bool) {
	for _, op := range operations {
		if op.Name() == name {
			return op, true
		}
	}
	return nil, false
}

// Get returns the account's order, or [ErrNotFound].
func (s *Service) Get(ctx context.Context, accountID, id uuid.UUID) (Order, error) {
	o, err := findOrder(ctx, s.pool, accountID, id)
	return o.Order, err
}

// List returns a page of the account's orders, newest first, which follows the order after.
// uuid.Nil is for the first page, [ErrNotFound] for an unknown order.
func (s *Service) List(ctx context.Context, accountID uuid.UUID, limit int, after uuid.UUID) iter.Seq2[Order, error] {
	var cursor *orderRow
	if after != uuid.Nil {
		o, err := findOrder(ctx, s.pool, accountID, after)
		if err != nil {
			return failedList[Order](err)
		}
		cursor = &o
	}
	return listOrders(ctx, s.pool, accountID, limit, cursor)
}

func failedList[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) { yield(*new(T), err) }
}

// GetRefund returns the refund of the account's order, or [ErrNotFound].
func (s *Service) GetRefund(ctx context.Context, accountID, order, id uuid.UUID) (Refund, error) {
	r, err := findRefund(ctx, s.pool, accountID, id)
	if err == nil && r.OrderID != order {
		err = ErrNotFound
	}
	return r.Refund, err
}

// ListRefunds is like [Service.List] for the refunds of an order. The error is [ErrNotFound]
// for an unknown order and a [*ValidationError] for an unknown refund.
func (s *Service) ListRefunds(ctx context.Context, accountID, order uuid.UUID, limit int, after uuid.UUID) iter.Seq2[Refund, error] {
	if _, err := findOrder(ctx, s.pool, accountID, order); err != nil {
		return failedList[Refund](err)
	}
	var cursor *refundRow
	if after != uuid.Nil {
		r, err := findRefund(ctx, s.pool, accountID, after)
		if errors.Is(err, ErrNotFound) || err == nil && r.OrderID != order {
			err = invalid("/after", CodeNotFound, "must be the id of a refund of this order")
		}
		if err != nil {
			return failedList[Refund](err)
		}
		cursor = &r
	}
	return listRefunds(ctx, s.pool, accountID, order, limit, cursor)
}
