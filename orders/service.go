package orders

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/operations"
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
			Resolve: func(idempotency.Status) idempotency.Operation {
				return createOrder{Service: s, close: true}
			},
		},
		operations.Registration{
			Operation: createRefund{Service: s},
			Links:     linksOf,
			Resolve: func(key idempotency.Status) idempotency.Operation {
				return createRefund{Service: s, resolving: &key}
			},
		},
	)
	return s
}

// ResourcesOf returns the ids of the order and refund of a key's request, or uuid.Nil.
func ResourcesOf(key idempotency.Status) (order, refund uuid.UUID) {
	switch key.Operation {
	case createOrder{}.Name():
		return orderID(key.AccountID, key.Key), uuid.Nil
	case createRefund{}.Name():
		order, _ = uuid.Parse(strings.TrimSuffix(strings.TrimPrefix(key.Path, "/v1/orders/"), "/refunds"))
		return order, refundID(key.AccountID, key.Key)
	default:
		return uuid.Nil, uuid.Nil
	}
}

func linksOf(key idempotency.Status) operations.Links {
	order, refund := ResourcesOf(key)
	links := operations.Links{"order": {ID: order, Href: orderPath(order)}}
	if refund != uuid.Nil {
		links["refund"] = &operations.Resource{ID: refund, Href: refundPath(order, refund)}
	}
	return links
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
func (s *Service) ExpireKey(ctx context.Context, accountID, keyID uuid.UUID, createdAt time.Time) error {
	return s.config.Engine.Expire(ctx, accountID, keyID, createOrder{}.Name(), "/v1/orders", createdAt)
}

// KeyHistory is what a key has created.
type KeyHistory struct {
	Order   *Order                   // or nil
	Refund  *Refund                  // of that order, or nil
	Records []operations.AuditRecord // oldest first
}

// History also works for a reaped key.
func History(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID, key idempotency.Key) (KeyHistory, error) {
	var history KeyHistory
	created := orderID(accountID, key)
	order := created
	switch r, err := findRefund(ctx, pool, accountID, refundID(accountID, key)); {
	case err == nil:
		history.Refund, created, order = &r.Refund, r.ID, r.OrderID
	case !errors.Is(err, operations.ErrNotFound):
		return KeyHistory{}, err
	}
	switch o, err := findOrder(ctx, pool, accountID, order); {
	case err == nil:
		history.Order = &o.Order
	case !errors.Is(err, operations.ErrNotFound):
		return KeyHistory{}, err
	}
	var err error
	history.Records, err = operations.AuditRecords(ctx, pool, accountID, idempotency.KeyID(accountID, key), created)
	return history, err
}
