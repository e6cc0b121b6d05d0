package operations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/postgres"
)

// Service continues, describes and ends the keys of all registered operations.
type Service struct {
	Engine        *idempotency.Engine
	Pool          *pgxpool.Pool
	Registrations []Registration
}

// Operations returns all operations for the engine.
func (s *Service) Operations() (list []idempotency.Operation) {
	for _, registered := range s.Registrations {
		list = append(list, registered.Operation)
	}
	return list
}

// Resume continues the request of an unfinished key from its stored parameters.
func (s *Service) Resume(ctx context.Context, accountID, keyID uuid.UUID) (idempotency.Result, error) {
	return s.Engine.Resume(ctx, accountID, keyID, s.Operations())
}

// ContinueAfterAction continues the request of a key, or returns an [*httpjson.ActionRequiredError] if it
// still requires an action. A run that does not finish is no error, because the key's status shows it.
func (s *Service) ContinueAfterAction(ctx context.Context, key idempotency.StoredKey) error {
	registered, _ := s.find(key)
	if registered.CheckAction == nil {
		return nil
	}
	if err := registered.CheckAction(ctx, key); err != nil {
		return err
	}
	_, err := s.Resume(ctx, key.AccountID, key.ID)
	if _, unfinished := errors.AsType[*httpjson.ProviderError](err); unfinished || errors.Is(err, idempotency.ErrInProgress) {
		return nil
	}
	return err
}

func (s *Service) find(key idempotency.StoredKey) (Registration, bool) {
	i := slices.IndexFunc(s.Registrations, func(r Registration) bool { return r.Operation.Name() == key.Operation })
	if i < 0 {
		return Registration{}, false
	}
	return s.Registrations[i], true
}

// Registration describes an operation. Package api serves POST Path, with Get the GET of a resource and,
// with List, GET Path.
type Registration struct {
	Operation idempotency.Operation

	// Path is such as /v1/credits or, below another operation's resource, /v1/orders/{id}/refunds.
	Path string

	// Member is the resource's name in the status of a key: order, refund, or [MemberResource]. Another
	// name also needs a member in keyView of package api and in the schema KeyStatus.
	Member string

	// ID, if set, returns the id of the resource that a key creates (R5, derived ids).
	ID func(accountID uuid.UUID, key idempotency.Key) uuid.UUID

	// Get, if set, returns a resource, or [httpjson.ErrNotFound].
	Get func(ctx context.Context, of Target) (any, error)

	// List, if set, returns resources, the newest first. Filters are its query parameters.
	List    func(ctx context.Context, of Target, page httpjson.Page) iter.Seq2[any, error]
	Filters []string

	// Table, if set, is the resources' table. Operators find them by id, and by Names: at least one condition
	// in SQL on the name $3, mostly with an index that begins with the account. KeySQL, if set, is the idempotency key
	// whose history a resource belongs to; otherwise, it is the column idempotency_key.
	Table  string
	Names  []string
	KeySQL string

	// CheckAction, if set, returns an [*httpjson.ActionRequiredError] if a key still waits for an action.
	CheckAction func(ctx context.Context, key idempotency.StoredKey) error
}

// MemberResource is the [Registration.Member] of operations that have none of their own.
const MemberResource = "resource"

// IsNested reports whether the Path is below another resource.
func (r Registration) IsNested() bool { return strings.Contains(r.Path, "{id}") }

// ParentID returns the {id} in the path of a request below another resource, or uuid.Nil.
func ParentID(pattern, path string) uuid.UUID {
	before, after, _ := strings.Cut(pattern, "{id}")
	id, _ := uuid.Parse(strings.TrimSuffix(strings.TrimPrefix(path, before), after))
	return id
}

// Target is a resource of an account, or all of them without ID. Parent is the resource above a
// nested Path.
type Target struct{ AccountID, Parent, ID uuid.UUID }

// Found is a resource that an operator looks for, and the key that created it.
type Found struct {
	AccountID uuid.UUID
	Key       idempotency.Key
	What      string // such as order 6f2a…, payment_failed
}

// Find returns the resources of the accounts with this name, see [Registration.Names].
func (s *Service) Find(ctx context.Context, accountIDs []uuid.UUID, name string) (found []Found, err error) {
	id, _ := uuid.Parse(name) // otherwise uuid.Nil, which no resource has
	for _, r := range s.Registrations {
		if r.Table == "" {
			continue
		}
		some, err := postgres.Collect(ctx, s.Pool, "find "+r.Table, pgx.RowToStructByPos[Found], r.findSQL(), accountIDs, id, name)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

// findSQL finds the newest resources. With indexes that begin with the account, a search through all accounts
// takes a few index lookups per account.
func (r Registration) findSQL() (query string) {
	for _, condition := range r.Names {
		query += fmt.Sprintf("    UNION SELECT account_id, id, created_at FROM %s WHERE account_id = ANY($1) AND %s\n", r.Table, condition)
	}
	return fmt.Sprintf(`
WITH named AS (
    SELECT account_id, id, created_at FROM %[1]s WHERE account_id = ANY($1) AND id = $2
%[2]s    ORDER BY created_at DESC LIMIT 50
)
SELECT account_id, %[4]s, '%[3]s ' || id || ', ' || status
  FROM %[1]s JOIN named USING (account_id, id, created_at)`, r.Table, query, r.Member, cmp.Or(r.KeySQL, "idempotency_key"))
}
