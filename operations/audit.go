package operations

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/postgres"
)

// InsertAudit begins a statement that writes audit records.
const InsertAudit = `
INSERT INTO audit_records (
    id,
    account_id,
    action,
    resource_type,
    resource_id,
    data,
    request_ip
)`

const insertAuditRecord = InsertAudit + " VALUES ($1, $2, $3, $4, $5, $6, $7)"

// AuditTx queues an audit record. The action begins with the resource's type, as in order.paid.
// Ascending ids (UUIDv7) keep the index small.
func AuditTx(tx postgres.Queuer, accountID, resourceID uuid.UUID, action string, data map[string]any, clientIP netip.Addr) {
	resource, _, _ := strings.Cut(action, ".")
	tx.Queue(insertAuditRecord, uuid.Must(uuid.NewV7()), accountID, action, resource, resourceID.String(), data, clientIP)
}

// AuditRecord is an entry of the audit log.
type AuditRecord struct {
	Action    string
	Data      json.RawMessage
	ClientIP  string // "" without a client
	CreatedAt time.Time
}

// AuditRecords returns the records of resources of the account, oldest first.
func AuditRecords(ctx context.Context, pool *pgxpool.Pool, accountID uuid.UUID, resources ...uuid.UUID) ([]AuditRecord, error) {
	ids := make([]string, len(resources))
	for i, id := range resources {
		ids[i] = id.String()
	}
	return postgres.Collect(ctx, pool, "read audit records", pgx.RowToStructByPos[AuditRecord], `
SELECT action,
       data,
       coalesce(host(request_ip), ''),
       created_at
  FROM audit_records
 WHERE account_id = $1
   AND resource_id = ANY($2)
 ORDER BY created_at, id`, accountID, ids)
}
