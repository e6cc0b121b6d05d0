package reconcile

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/postgres"
)

const recordPage = 500 // records of an account that are read at once

const columns = `
SELECT record.account_id,
       record.id,
       coalesce(record.idempotency_key, ''),
       record.status,
       record.amount,
       record.currency,
       record.created_at,
       key.finished_at,
       key.locked_at,
       key.last_run_at,
       coalesce(key.response_code, 0),
       key.id IS NOT NULL AND key.finished_at IS NULL,`

// withKey reads a record and its key in one snapshot, because a transaction that commits between
// two statements would look like a discrepancy.
const withKey = ` AS record
  LEFT JOIN idempotency_keys AS key
    ON key.account_id = record.account_id
   AND key.idempotency_key = record.idempotency_key`

const selectOrders = columns + `
       record.id,
       coalesce(record.payment_intent_id, '')
  FROM orders` + withKey

const selectRefunds = columns + `
       record.order_id,
       coalesce(record.provider_refund_id, '')
  FROM refunds` + withKey

// byID also finds a refund that was made at the provider's dashboard, by its id there. It is a UNION,
// because a join with OR would scan the table.
const byID = `
  JOIN (
           SELECT *
             FROM unnest($1::uuid[], $2::uuid[])
            UNION
           SELECT made.account_id,
                  made.id
             FROM unnest($1::uuid[], $3::text[]) AS listed (account_id, provider_id)
             JOIN refunds AS made
               ON made.account_id = listed.account_id
              AND made.provider_refund_id = listed.provider_id
       ) AS wanted (account_id, id)
    ON wanted.account_id = record.account_id
   AND wanted.id = record.id
 ORDER BY record.created_at DESC, record.id DESC`

const beforeRecord = `
 WHERE record.account_id = $1
   AND record.created_at >= $2
   AND (record.created_at, record.id) < ($3, $4)
 ORDER BY record.created_at DESC, record.id DESC
 LIMIT $5`

func (c *comparison[P]) recordsBefore(ctx context.Context, l localState) ([]localState, error) {
	return c.query(ctx, c.selectRecords+beforeRecord, l.accountID, c.report.Since, l.createdAt, l.recordID, recordPage)
}

func (c *comparison[P]) load(ctx context.Context, page []providerState) ([]localState, error) {
	var accountIDs, ids []uuid.UUID
	var providerIDs []string
	for _, p := range page {
		accountIDs, ids, providerIDs = append(accountIDs, p.accountID), append(ids, p.recordID), append(providerIDs, p.id)
	}
	records, err := c.query(ctx, c.selectRecords+byID, accountIDs, ids, providerIDs)
	if err != nil {
		return nil, err
	}
	states := make([]localState, len(page))
	for i, p := range page {
		states[i] = localState{metadataIDs: p.metadataIDs, status: missing}
		for _, l := range records {
			named := l.recordID == p.recordID && states[i].status == missing
			if l.accountID == p.accountID && (named || c.isOfProvider(l, p.id)) {
				states[i] = l
			}
		}
	}
	return states, nil
}

func (c *comparison[P]) query(ctx context.Context, query string, arguments ...any) ([]localState, error) {
	return postgres.Collect(ctx, c.Orders.Pool, "read records", func(row pgx.CollectableRow) (localState, error) {
		var l localState
		var key idempotency.Key
		err := row.Scan(&l.accountID, &l.recordID, &key, &l.status, &l.money.Amount, &l.money.Currency, &l.createdAt,
			&l.finishedAt, &l.lockedAt, &l.lastRunAt, &l.responseCode, &l.unfinished, &l.orderID, &l.providerID)
		if key != "" { // otherwise it is a refund of the dashboard
			l.keyID = idempotency.KeyID(l.accountID, key)
		}
		return l, err
	}, query, arguments...)
}

func accountIDs(ctx context.Context, pool *pgxpool.Pool) ([]uuid.UUID, error) {
	return postgres.Collect(ctx, pool, "read accounts", pgx.RowTo[uuid.UUID], "SELECT id FROM accounts ORDER BY id")
}
