package audit

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// Insert begins a statement that writes records.
const Insert = `
INSERT INTO audit_records (
    id,
    account_id,
    action,
    resource_type,
    resource_id,
    data
)`

const insertRecord = Insert + " VALUES ($1, $2, $3, $4, $5, $6)"

type apiKeyKey struct{}

// WithAPIKey returns the context of a client's request. Records that are written with it have the prefix of the
// API key, so that an operator sees what a leaked one has done.
func WithAPIKey(ctx context.Context, prefix string) context.Context {
	return context.WithValue(ctx, apiKeyKey{}, prefix)
}

// WriteTx queues a record. It adds the prefix of the API key to data if a client's request is the cause, see
// [WithAPIKey]. The action begins with the resource's type, as in order.paid.
// Ascending ids (UUIDv7) keep the index small.
func WriteTx(ctx context.Context, tx postgres.Queuer, accountID, resourceID uuid.UUID, action string, data map[string]any) {
	resource, _, _ := strings.Cut(action, ".")
	if prefix := ctx.Value(apiKeyKey{}); prefix != nil {
		data["api_key"] = prefix
	}
	tx.Queue(insertRecord, uuid.Must(uuid.NewV7()), accountID, action, resource, resourceID.String(), data)
}

// Operator is who acts on a key or a job, and why.
type Operator struct {
	Actor  string `json:"by"`
	Reason string `json:"reason"`
}

// WriteKeyTx queues the record of an operator's action on a key, such as key.retry.
func WriteKeyTx(tx postgres.Queuer, accountID, keyID uuid.UUID, action string, by Operator) {
	tx.Queue(insertRecord, uuid.Must(uuid.NewV7()), accountID, action, "idempotency_key", keyID.String(), by)
}

// Record is an entry of the audit log.
type Record struct {
	Action    string
	Data      json.RawMessage
	CreatedAt time.Time
}

// Records returns the records of resources of the account, oldest first.
func Records(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID, resources ...uuid.UUID) ([]Record, error) {
	ids := make([]string, len(resources))
	for i, id := range resources {
		ids[i] = id.String()
	}
	return postgres.Collect(ctx, pool, "read audit records", pgx.RowToStructByPos[Record], `
SELECT action,
       data,
       created_at
  FROM audit_records
 WHERE account_id = $1
   AND resource_id = ANY($2)
 ORDER BY created_at, id`, accountID, ids)
}
