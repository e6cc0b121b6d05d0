package idempotency_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/idempotency"
	"example.com/orders-api/migrations/dbtest"
)

func TestTrial(t *testing.T) {
	if os.Getenv("TRIAL") == "" {
		return
	}
	for _, op := range []string{"pg_cancel_backend", "pg_terminate_backend", ""} {
		for _, commit := range []int{1, 3} {
			b := newBench(t, connections(3), sessionSetting("synchronous_commit", "on"))
			conn, err := pgx.Connect(t.Context(), dbtest.URL(b.pool))
			require.NoError(t, err)
			exec := func(s string) { _, err := conn.Exec(t.Context(), s); require.NoError(t, err) }
			req := b.request()
			ops := &threeSteps{}
			ghost := func() {
				exec("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
				exec("SELECT pg_reload_conf()")
				require.Eventually(t, func() bool {
					var s string
					c2, err := pgx.Connect(t.Context(), dbtest.URL(b.pool))
					require.NoError(t, err)
					defer c2.Close(t.Context())
					c2.QueryRow(t.Context(), "SHOW synchronous_standby_names").Scan(&s)
					return s == "ghost"
				}, patience, 20*time.Millisecond)
				time.Sleep(100 * time.Millisecond)
			}
			if commit == 1 {
				ghost()
			} else {
				ops.pay = func(context.Context, *idempotency.Run) error { ghost(); return nil }
			}
			done := make(chan string)
			start := time.Now()
			go func() {
				r, err := b.do(req, ops)
				done <- fmt.Sprint("status ", r.Response.Status, " err ", err, " after ", time.Since(start).Round(100*time.Millisecond))
			}()
			if op != "" {
				require.Eventually(t, func() bool {
					tag, err := conn.Exec(t.Context(), "SELECT "+op+"(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()")
					return err == nil && tag.RowsAffected() > 0
				}, patience, 5*time.Millisecond)
			}
			first := <-done
			var n int
			conn.QueryRow(t.Context(), "SELECT count(*) FROM idempotency_keys WHERE recovery_point <> 'paid'").Scan(&n)
			fmt.Printf("%-22s COMMIT %d: %s; visible: %d\n", op, commit, first, n)
			exec("ALTER SYSTEM RESET synchronous_standby_names")
			exec("SELECT pg_reload_conf()")
			require.NoError(t, conn.Close(t.Context()))
		}
	}
}

var _ = pgxpool.Config{}
