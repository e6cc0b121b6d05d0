package shop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"example.com/orders-api/client"
)

// products returns the products of the shop. A real shop has a table.
func products() []client.Item {
	return []client.Item{
		{SKU: "tea", Description: "Green tea", UnitAmount: 1250},
		{SKU: "mug", Description: "Mug", UnitAmount: 900},
		{SKU: "kettle", Description: "Kettle", UnitAmount: 4300},
	}
}

func money(amount int64) string { return fmt.Sprintf("$%d.%02d", amount/100, amount%100) }

type state string

const (
	inBasket state = "basket"  // the customer can change it
	paying   state = "paying"  // the request is stored, and its outcome is unknown
	paid     state = "paid"    // the API has responded 201
	stopped  state = "stopped" // only the shop's staff can continue
)

// purchase is a row of shop.purchases. The migrations explain its columns.
type purchase struct {
	ID          uuid.UUID
	State       state
	Quantities  map[string]int64
	Key         client.Key
	Request     []byte
	Attempts    int
	RequestedAt time.Time
	OrderID     string
	Email       string
	Message     string
}

// Path returns the path of the purchase's page.
func (p purchase) Path() string { return Path + "/purchases/" + p.ID.String() }

// Order returns the stored request, or without one the basket at today's prices.
func (p purchase) Order() (order client.OrderParams) {
	if json.Unmarshal(p.Request, &order) == nil {
		return order
	}
	// The reference prevents a second charge even if the shop loses this table.
	order.Currency, order.Reference = "usd", p.ID.String()
	for _, item := range products() {
		if item.Quantity = p.Quantities[item.SKU]; item.Quantity > 0 {
			order.Items = append(order.Items, item)
		}
	}
	return order
}

// Amount returns the total.
func (p purchase) Amount() (amount int64) {
	for _, item := range p.Order().Items {
		amount += item.Quantity * item.UnitAmount
	}
	return amount
}

// Migrate creates the shop's schema and tables.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS shop"); err != nil { // goose creates its own table first
		return err
	}
	migrations, _ := fs.Sub(files, "migrations") // the name is valid
	provider, err := goose.NewProvider(goose.DialectPostgres, stdlib.OpenDBFromPool(pool), migrations,
		goose.WithTableName("shop.goose_db_version"), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return errors.Join(err, provider.Close())
}

const columns = ` id, state, quantities, coalesce(idempotency_key, '') AS key, request, attempts, requested_at,
	coalesce(order_id, '') AS order_id, email, message `

// one returns a purchase or pgx.ErrNoRows.
func (s *Shop) one(ctx context.Context, sql string, arguments ...any) (purchase, error) {
	rows, _ := s.Pool.Query(ctx, sql, arguments...) // CollectExactlyOneRow returns the error
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[purchase])
}

func (s *Shop) find(ctx context.Context, customer, id string) (purchase, error) {
	return s.one(ctx, "SELECT"+columns+"FROM shop.purchases WHERE customer = $1 AND id::text = $2", customer, id)
}

// saveBasket stores the customer's basket. A new basket gets a new key, and a basket that is being paid
// does not change.
func (s *Shop) saveBasket(ctx context.Context, customer string, quantities map[string]int64) (purchase, error) {
	return s.one(ctx, `
INSERT INTO shop.purchases AS p (customer, idempotency_key, quantities)
VALUES ($1, $2, $3)
    ON CONFLICT (customer) WHERE state IN ('basket', 'paying')
    DO UPDATE SET quantities = CASE p.state WHEN 'basket' THEN excluded.quantities ELSE p.quantities END
RETURNING`+columns, customer, client.NewKey(), quantities)
}

// unchanged selects the purchase if it still has this key and request.
const unchanged = " WHERE id = $1 AND idempotency_key = $2 AND request IS NOT DISTINCT FROM $3 "

// change executes an UPDATE with the condition unchanged, and returns the purchase as it is then. If
// another attempt has changed the purchase first, the UPDATE changes nothing.
func (s *Shop) change(ctx context.Context, p purchase, update string, arguments ...any) (purchase, error) {
	if _, err := s.Pool.Exec(ctx, update, append([]any{p.ID, p.Key, p.Request}, arguments...)...); err != nil {
		return p, err
	}
	return s.one(ctx, "SELECT"+columns+"FROM shop.purchases WHERE id = $1", p.ID)
}

// submit stores the exact request next to its key, before the first attempt. If another tab was
// faster, the request of that tab stays.
func (s *Shop) submit(ctx context.Context, p purchase, email, paymentMethod string) (purchase, error) {
	order := p.Order()
	order.Email, order.PaymentMethod = email, paymentMethod
	request, _ := json.Marshal(order) // cannot fail with strings and numbers
	return s.change(ctx, p, `UPDATE shop.purchases
   SET state = 'paying', request = $4, email = $5, attempts = 0, requested_at = now(), attempted_at = now(), message = ''`+unchanged,
		request, email)
}

// begin counts an attempt before it is sent, or returns pgx.ErrNoRows if another attempt has ended the
// purchase. It compares the request, too: after a correction, the customer may have paid again with the
// same key, and then a stale tab must not send the former request.
func (s *Shop) begin(ctx context.Context, p *purchase) error {
	return s.Pool.QueryRow(ctx, "UPDATE shop.purchases SET attempts = attempts + 1, attempted_at = now()"+unchanged+
		"AND state = 'paying' RETURNING attempts", p.ID, p.Key, p.Request).Scan(&p.Attempts)
}

// finish records the order and drops the key, because the next purchase needs another one. Key and
// reference only identify the order, so finish also compares its content. After the restore of a backup,
// a basket may have the reference of an order that the customer has already paid.
func (s *Shop) finish(ctx context.Context, p purchase, order client.Order) (purchase, error) {
	want := p.Order()
	if order.Status != "paid" || order.Amount != p.Amount() || order.Currency != want.Currency ||
		string(order.Email) != want.Email || !slices.Equal(order.Items, want.Items) {
		s.Logger.ErrorContext(ctx, "shop: another order", "purchase", p.ID, "order", order.ID, "status", order.Status)
		return s.stop(ctx, p)
	}
	return s.change(ctx, p, "UPDATE shop.purchases SET state = 'paid', order_id = $4, idempotency_key = NULL"+unchanged, order.ID)
}

// stop leaves the purchase to the shop's staff, unless an attempt in flight finishes it.
func (s *Shop) stop(ctx context.Context, p purchase) (purchase, error) {
	return s.change(ctx, p, "UPDATE shop.purchases SET state = 'stopped'"+unchanged)
}

// reopen lets the customer pay again. It does nothing if another attempt has begun, because that attempt
// needs the stored request.
func (s *Shop) reopen(ctx context.Context, p purchase, key client.Key, message string) (purchase, error) {
	return s.change(ctx, p, "UPDATE shop.purchases SET state = 'basket', request = NULL, idempotency_key = $4, message = $5"+unchanged+
		"AND state = 'paying' AND attempts = $6", key, message, p.Attempts)
}
