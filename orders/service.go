package orders

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
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
	Registrations []Registration
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
	return s.Engine.Resume(ctx, accountID, keyID, s.Operation)
}

// Operation returns the operation that is stored with a key.
func (s *Service) Operation(name string) (idempotency.Operation, bool) {
	operations := []idempotency.Operation{createOrder{Service: s}, createRefund{Service: s}}
	for _, registered := range s.Registrations {
		operations = append(operations, registered.Operation)
	}
	return byName(name, operations...)
}

func byName(name string, operations ...idempotency.Operation) (idempotency.Operation, bool) {
	i := slices.IndexFunc(operations, func(op idempotency.Operation) bool { return op.Name() == name })
	if i < 0 {
		return nil, false
	}
	return operations[i], true
}

// Get returns the account's order, or [ErrNotFound].
func (s *Service) Get(ctx context.Context, accountID, id uuid.UUID) (Order, error) {
	o, err := findOrder(ctx, s.Pool, accountID, id)
	return o.Order, err
}

// List returns a page of the account's orders, newest first, which follows the order after.
// uuid.Nil is for the first page, [ErrNotFound] for an unknown order.
func (s *Service) List(ctx context.Context, accountID uuid.UUID, limit int, after uuid.UUID) iter.Seq2[Order, error] {
	cursor := firstPage()
	if after != uuid.Nil {
		o, err := findOrder(ctx, s.Pool, accountID, after)
		if err != nil {
			return failedList[Order](err)
		}
		cursor = position{o.CreatedAt.Time, o.ID}
	}
	return listOrders(ctx, s.Pool, accountID, limit, cursor)
}

func failedList[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) { yield(*new(T), err) }
}

// GetRefund returns the refund of the account's order, or [ErrNotFound].
func (s *Service) GetRefund(ctx context.Context, accountID, order, id uuid.UUID) (Refund, error) {
	r, err := findRefund(ctx, s.Pool, accountID, id)
	if err == nil && r.OrderID != order {
		err = ErrNotFound
	}
	return r.Refund, err
}

// ListRefunds is like [Service.List] for the refunds of an order. The error is [ErrNotFound]
// for an unknown order and a [*ValidationError] for an unknown refund.
func (s *Service) ListRefunds(ctx context.Context, accountID, order uuid.UUID, limit int, after uuid.UUID) iter.Seq2[Refund, error] {
	if _, err := findOrder(ctx, s.Pool, accountID, order); err != nil {
		return failedList[Refund](err)
	}
	cursor := firstPage()
	if after != uuid.Nil {
		r, err := findRefund(ctx, s.Pool, accountID, after)
		if errors.Is(err, ErrNotFound) || err == nil && r.OrderID != order {
			err = &ValidationError{Fields: []FieldError{{"/after", CodeNotFound, "must be the id of a refund of this order"}}}
		}
		if err != nil {
			return failedList[Refund](err)
		}
		cursor = position{r.CreatedAt.Time, r.ID}
	}
	return listRefunds(ctx, s.Pool, accountID, order, limit, cursor)
}
