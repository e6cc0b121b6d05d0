package orders

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
	"example.com/orders-api/operations/audit"
	"example.com/orders-api/payments"
)

// Service creates and reads orders and refunds, also concurrently.
type Service struct{ config Config }

// Config configures a [Service]. All fields are required.
type Config struct {
	Engine     *idempotency.Engine
	Operations *operations.Service // New adds to it
	Pool       *pgxpool.Pool
	Payments   *payments.Client

	StepTimeout  time.Duration // of a step's provider calls, retries included (R9)
	ChargeWindow time.Duration // the age from which an order is not charged (R24)

	Logger *slog.Logger
}

// New registers the operations.
func New(config Config) *Service {
	s := &Service{config: config}
	config.Operations.Register(
		operations.Registration{
			Operation:      createOrder{Service: s},
			Links:          linksOf,
			RequiredAction: s.requiredAction,
			Resolve: func(idempotency.StoredKey) idempotency.Operation {
				return createOrder{Service: s, close: true}
			},
		},
		operations.Registration{
			Operation: createRefund{Service: s},
			Links:     linksOf,
			Resolve: func(idempotency.StoredKey) idempotency.Operation {
				return createRefund{Service: s, resolving: true}
			},
		},
	)
	return s
}

// linksOf returns what the request of a key creates or names.
func linksOf(key idempotency.StoredKey) operations.Links {
	if key.Operation == (createOrder{}).Name() {
		id := orderID(key.AccountID, key.Key)
		return operations.Links{"order": {ID: id, Href: orderPath(id)}}
	}
	order, _ := uuid.Parse(strings.TrimSuffix(strings.TrimPrefix(key.Path, "/v1/orders/"), "/refunds"))
	refund := refundID(key.AccountID, key.Key)
	return operations.Links{
		"order":  {ID: order, Href: orderPath(order)},
		"refund": {ID: refund, Href: refundPath(order, refund)},
	}
}

// Get returns the account's order, or [operations.ErrNotFound].
func (s *Service) Get(ctx context.Context, accountID, id uuid.UUID) (Order, error) {
	o, err := findOrder(ctx, s.config.Pool, accountID, id)
	return o.Order, err
}

// GetRefund returns the refund of the account's order, or [operations.ErrNotFound].
func (s *Service) GetRefund(ctx context.Context, accountID, order, id uuid.UUID) (Refund, error) {
	r, err := findRefund(ctx, s.config.Pool, accountID, id)
	if err == nil && r.OrderID != order {
		err = operations.ErrNotFound
	}
	return r.Refund, err
}

// ExpireKey rejects retries of a charged order whose rows are lost (R17): once the provider's
// keys have expired, they would charge again.
func (s *Service) ExpireKey(ctx context.Context, accountID, keyID uuid.UUID, createdAt time.Time, actor, reason string) error {
	action := audit.Operator{Actor: actor, Reason: reason}
	if err := audit.WriteKey(ctx, s.config.Pool, accountID, keyID, "key.expire", action); err != nil {
		return err
	}
	return s.config.Engine.Expire(ctx, accountID, keyID, createOrder{}.Name(), "/v1/orders", createdAt)
}
