package orders

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/payments"
)

// Service creates and reads orders and refunds. It is safe for concurrent use.
type Service struct{ Config }

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
	Registrations Registrations
}

// New returns a Service, or an error if a required field is missing.
func New(config Config) (*Service, error) {
	if config.Engine == nil || config.Pool == nil || config.Payments == nil || config.Logger == nil ||
		config.StepTimeout <= 0 || config.ChargeWindow <= 0 {
		return nil, errors.New("orders: a required field of Config is missing")
	}
	return &Service{config}, nil
}

// stepContext bounds a step's provider calls. Its deadline has no monotonic time, which
// stops while a machine is suspended: another run may have taken over by then.
func (s *Service) stepContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, time.Now().Add(s.StepTimeout).Round(0))
}

// sendContext bounds a call that moves money to three fifths of the step's remaining
// time. The rest is for reading the result.
func sendContext(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	return context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)*2/5))
}

// Resume continues the request of an unfinished key from its stored parameters.
func (s *Service) Resume(ctx context.Context, accountID, keyID uuid.UUID) (idempotency.Result, error) {
	return s.Engine.Resume(ctx, accountID, keyID, s.Operations())
}

// Operations returns all operations, including those of other packages.
func (s *Service) Operations() (list []idempotency.Operation) {
	for _, registered := range s.registrations() {
		list = append(list, registered.Operation)
	}
	return list
}

// registrations returns the operations of this package and of other packages.
func (s *Service) registrations() Registrations {
	return append(Registrations{
		{Operation: createOrder{Service: s}, Resolve: func(idempotency.Status) idempotency.Operation {
			return createOrder{Service: s, resolve: true}
		}},
		{Operation: createRefund{Service: s}, Resolve: func(key idempotency.Status) idempotency.Operation {
			return createRefund{Service: s, resolution: &resolution{attempt: key.Attempt, idle: key.Idle > inFlightGrace}}
		}},
	}, s.Registrations...)
}

// Get returns the account's order, or [ErrNotFound].
func (s *Service) Get(ctx context.Context, accountID, id uuid.UUID) (Order, error) {
	o, err := findOrder(ctx, s.Pool, accountID, id)
	return o.Order, err
}

// GetRefund returns the refund of the account's order, or [ErrNotFound].
func (s *Service) GetRefund(ctx context.Context, accountID, order, id uuid.UUID) (Refund, error) {
	r, err := findRefund(ctx, s.Pool, accountID, id)
	if err == nil && r.OrderID != order {
		err = ErrNotFound
	}
	return r.Refund, err
}
