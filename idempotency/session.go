package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"
)

// sessionTimeouts bound how long a stalled run can hold others up (R21), in
// milliseconds. A run that hangs inside a transaction holds the key's row, and
// no lease helps against that.
var sessionTimeouts = map[string]string{
	"lock_timeout":                        "2000",  // then answered as in progress
	"statement_timeout":                   "10000", // no statement here takes a tenth of it
	"idle_in_transaction_session_timeout": "5000",
}

// ConfigurePool makes config's sessions fit for the engine. They get the three
// timeouts of R21, unless the connection string sets its own; they notice a
// COMMIT that was not replicated, and never cause one (R22); and one that turns
// out to be read-only, on a primary that was demoted, is closed, so that the
// next one finds the new primary.
func ConfigurePool(config *pgxpool.Config) {
	params := config.ConnConfig.RuntimeParams
	for name, value := range sessionTimeouts {
		if _, set := params[name]; !set {
			params[name] = value
		}
	}
	if _, set := params["application_name"]; !set {
		params["application_name"] = "orders-api"
	}
	noteUnreplicated(config)
	neverCancel(config)
	closeReadOnly(config)
	learnUUIDs(config)
}

// learnUUIDs makes connections send and read uuid.UUID as sixteen bytes. Without
// it pgx goes through database/sql's text, a sixth of a request's allocations.
func learnUUIDs(config *pgxpool.Config) {
	next := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		pgxuuid.Register(conn.TypeMap())
		if next == nil {
			return nil
		}
		return next(ctx, conn)
	}
}

// unreplicated is where a connection remembers that PostgreSQL gave up waiting
// for its synchronous standby: what it committed is visible, but the next
// failover may lose it.
const unreplicated = "idempotency.unreplicated"

// noteUnreplicated listens for the warning that comes before the answer to such
// a COMMIT. Its text depends on the server's language, its origin does not.
func noteUnreplicated(config *pgxpool.Config) {
	next := config.ConnConfig.OnNotice
	config.ConnConfig.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if notice.Routine == "SyncRepWaitForLSN" || strings.Contains(notice.Message, "synchronous replication") {
			conn.CustomData()[unreplicated] = true
		}
		if next != nil {
			next(conn, notice)
		}
	}
}

var errNeverCancel = errors.New("idempotency: statements are not cancelled")

// neverCancel keeps pgx from asking the server to cancel what runs on a
// connection that it gives up. The request would end the wait of a COMMIT for
// its synchronous standby and make the transaction visible, and replayed, though
// the next failover may lose it. Whatever runs on alone ends by
// statement_timeout. pgx sends the request through the connection's own
// DialFunc, so that one stops dialling once the connection stands.
func neverCancel(config *pgxpool.Config) {
	next := config.BeforeConnect
	config.BeforeConnect = func(ctx context.Context, conn *pgx.ConnConfig) error {
		if next != nil {
			if err := next(ctx, conn); err != nil {
				return err
			}
		}
		var connected atomic.Bool
		dial := conn.DialFunc
		conn.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if connected.Load() {
				return nil, errNeverCancel
			}
			return dial(ctx, network, address)
		}
		after := conn.AfterConnect
		conn.AfterConnect = func(ctx context.Context, pg *pgconn.PgConn) error {
			connected.Store(true)
			if after != nil {
				return after(ctx, pg)
			}
			return nil
		}
		return nil
	}
}

// closeReadOnly closes a session that refuses to write.
func closeReadOnly(config *pgxpool.Config) {
	next := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == stateReadOnly {
			return false
		}
		return next == nil || next(conn, err)
	}
}

// CheckSession returns an error that names every timeout of R21 that the
// pool's sessions lack, for instance because a pooler in between dropped it.
func CheckSession(ctx context.Context, pool *pgxpool.Pool) error {
	rows, err := pool.Query(ctx, `
SELECT name
  FROM pg_settings
 WHERE name IN ('lock_timeout', 'statement_timeout', 'idle_in_transaction_session_timeout')
   AND setting::bigint = 0
 ORDER BY name`)
	if err != nil {
		return fmt.Errorf("check session timeouts: %w", err)
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("check session timeouts: %w", err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("the database session has no %s: set them for the role (ALTER ROLE … SET) or let the pooler pass startup parameters",
			strings.Join(missing, ", "))
	}
	return nil
}
