package orders

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/orders-api/events"
	"example.com/orders-api/idempotency"
	"example.com/orders-api/internal/audit"
	"example.com/orders-api/internal/httpjson"
	"example.com/orders-api/internal/jobs"
	"example.com/orders-api/internal/postgres"
)

// obstacleSQL returns the ids of an order's keys, and why its data is still needed, or "". $3 is the id of the key that
// created the order. The paths of later requests about it begin with $4 and a slash. BETWEEN finds them by the index,
// because 0 is the character after the slash.
const obstacleSQL = `
WITH keys AS (
    SELECT id, finished_at
      FROM idempotency_keys
     WHERE account_id = $1
       AND (id = $3
            OR request_path LIKE '/v1/%/%/%' -- for its index
               AND request_path COLLATE "C" BETWEEN $4 || '/' AND $4 || '0')
)
SELECT ARRAY(SELECT id FROM keys),
       CASE
           WHEN status IN ('pending', 'requires_action') THEN 'its payment is in progress'
           WHEN EXISTS (SELECT FROM keys WHERE (finished_at <= now()) IS NOT TRUE) THEN 'one of its idempotency keys is unfinished'
           WHEN EXISTS (
               SELECT
                 FROM jsonb_array_elements(disputes) AS d
                WHERE d->>'status' NOT IN ('won', 'lost', 'warning_closed', 'prevented')
           ) THEN 'a dispute about it is open'
           WHEN coalesce(disputes, '[]') = '[]' AND EXISTS (
               SELECT
                 FROM refunds
                WHERE account_id = $1
                  AND order_id = $2
                  AND failure_reason IN ('charge_disputed', 'refund_disputed_payment')
           ) THEN 'a refund was refused because of a dispute that is not read yet'
           ELSE ''
       END
  FROM orders
 WHERE account_id = $1
   AND id = $2`

// Erase removes the personal data of an order: the email address, the items' descriptions and the metadata. Its keys
// expire first, because their requests and responses contain that data. It returns [httpjson.ErrNotFound], or why the
// data is still needed.
func (s *Service) Erase(ctx context.Context, accountID, orderID uuid.UUID, actor string) error {
	var refused error
	err := pgx.BeginTxFunc(ctx, s.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		var key idempotency.Key
		var intentID string
		err := tx.QueryRow(ctx, "SELECT idempotency_key, coalesce(payment_intent_id, '') FROM orders WHERE account_id = $1 AND id = $2 FOR UPDATE",
			accountID, orderID).Scan(&key, &intentID)
		if errors.Is(err, pgx.ErrNoRows) {
			refused = httpjson.ErrNotFound
			return nil
		}
		if err != nil {
			return err
		}
		var keys []uuid.UUID
		var obstacle string
		// READ COMMITTED: a separate statement sees what the lock's previous holder committed, such as a refund.
		err = tx.QueryRow(ctx, obstacleSQL, accountID, orderID, idempotency.KeyID(accountID, key), Path+"/"+orderID.String()).
			Scan(&keys, &obstacle)
		if err != nil {
			return err
		}
		for _, named := range []map[string]any{{"order_id": orderID}, {"intent_id": intentID}} {
			unfinished, err := jobs.With(ctx, tx, accountID, named)
			if err != nil {
				return err
			}
			for _, j := range unfinished {
				if j.Kind != events.Kind {
					obstacle = "a " + j.Kind + " of it is queued, failed or not acknowledged"
				}
			}
		}
		if obstacle != "" {
			refused = errors.New(obstacle)
			return nil
		}
		batch := &pgx.Batch{}
		idempotency.ExpireTx(batch, accountID, keys)
		batch.Queue(`
UPDATE orders
   SET email     = NULL,
       metadata  = '{}',
       items     = (
           SELECT jsonb_agg(item - 'description' ORDER BY n)
             FROM jsonb_array_elements(items) WITH ORDINALITY AS list (item, n)
       ),
       erased_at = now()
 WHERE account_id = $1
   AND id = $2`, accountID, orderID)
		audit.WriteTx(ctx, batch, accountID, orderID, "order.erased", map[string]any{"by": actor})
		return tx.SendBatch(ctx, batch).Close()
	})
	if err = cmp.Or(refused, postgres.Translate(err)); err != nil {
		err = fmt.Errorf("erase order %s: %w", orderID, err)
	}
	return err
}
