package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"
)

// sessionParameters bound, in milliseconds, how long a stalled session can block others (R21, session
// timeouts), and fix the encoding of our text.
var sessionParameters = map[string]string{
	"client_encoding":                     "UTF8",
	"lock_timeout":                        "2000",
	"statement_timeout":                   "10000",
	"idle_in_transaction_session_timeout": "5000",
	"application_name":                    "orders-api",
}

// refusalPause is how long a pool opens no session after the server has refused one, because each
// attempt costs the server a process.
const refusalPause = time.Second

// Configure gives a pool's sessions timeouts and a name, unless the connection string sets them.
//
// With synchronous replication, a COMMIT waits for the standby. The sessions never cancel this wait, and if the server
// ends it early, they mark the connection, see [Unreplicated] (R22, three outcomes of COMMIT). They only use a server
// that accepts writes, because another one may have old rows (R30, ready to take an order).
func Configure(config *pgxpool.Config) {
	params := config.ConnConfig.RuntimeParams
	for name, value := range sessionParameters {
		switch set, exists := params[name]; {
		case !exists:
			params[name] = value
		case set == "": // for a pooler that rejects it; CheckSession requires it of the role
			delete(params, name)
		}
	}
	if config.ConnConfig.ValidateConnect == nil {
		config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	config.ConnConfig.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if notice.Routine == "SyncRepWaitForLSN" || strings.Contains(notice.Message, "synchronous replication") {
			conn.CustomData()[unreplicated] = true
		}
	}
	var refusedAt atomic.Int64
	config.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
		if time.Now().UnixNano()-refusedAt.Load() < int64(refusalPause) {
			return &pgconn.PgError{Code: TooManyConnections, Message: "the server has just refused a session"}
		}
		disableCancel(conn)
		return nil
	}
	// pgx closes a session for which this returns false: after a fatal error, and here also on a
	// demoted primary, so that the next session finds the new one.
	keep := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == TooManyConnections {
			refusedAt.Store(time.Now().UnixNano())
		}
		return err.Code != ReadOnlyTransaction && keep(conn, err)
	}
	// By default pgx sends a uuid.UUID as text, which causes a sixth of a request's allocations.
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		pgxuuid.Register(conn.TypeMap())
		return nil
	}
}

// IsConfigured reports whether a configuration went through [Configure].
func IsConfigured(config *pgxpool.Config) bool {
	return config.ConnConfig.OnNotice != nil && config.BeforeConnect != nil
}

// disableCancel keeps pgx from cancelling an abandoned statement, because that would end a COMMIT's
// wait for its synchronous standby (R22, three outcomes of COMMIT). pgx sends the request through
// DialFunc, so DialFunc fails once the connection is established.
func disableCancel(conn *pgx.ConnConfig) {
	var connected atomic.Bool
	dial := conn.DialFunc
	conn.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() {
			return nil, errors.New("postgres: statements are not cancelled")
		}
		return dial(ctx, network, address)
	}
	conn.AfterConnect = func(context.Context, *pgconn.PgConn) error {
		connected.Store(true)
		return nil
	}
}

// CheckSession returns an error that names the settings that sessions lack: those of [Configure],
// which a pooler may drop (R21, session timeouts), and others that change what is stored. The isolation level is one of
// them, because no BEGIN names it: PostgreSQL would then inspect all its settings at COMMIT, which
// is 2 % of an order's CPU.
func CheckSession(ctx context.Context, pool *pgxpool.Pool) error {
	missing, err := Collect(ctx, pool, "check session settings", pgx.RowTo[string], `
SELECT name || coalesce(' = ' || required, '')
  FROM pg_settings
  JOIN (VALUES ('lock_timeout', NULL),
               ('statement_timeout', NULL),
               ('idle_in_transaction_session_timeout', NULL),
               ('default_transaction_isolation', 'read committed'),
               ('client_encoding', 'UTF8'),
               ('server_encoding', 'UTF8')) AS settings (name, required) USING (name)
 WHERE coalesce(setting <> required, setting = '0')
 ORDER BY name`)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("the database session has no %s: set them for the role (ALTER ROLE … SET) or let the pooler pass startup parameters (server_encoding is fixed when the database is created)",
			strings.Join(missing, ", "))
	}
	return nil
}
