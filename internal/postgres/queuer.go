package postgres

import "github.com/jackc/pgx/v5"

// Queuer queues statements for one round trip: a [pgx.Batch], or the transaction of a
// step.
type Queuer interface {
	Queue(query string, arguments ...any) *pgx.QueuedQuery
}
