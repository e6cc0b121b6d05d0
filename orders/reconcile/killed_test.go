package reconcile_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/jobs"
	. "example.com/orders-api/orders/orderstest"
	"example.com/orders-api/orders/reconcile"
)

// wire cuts a connection to the database at a message of the program: before it, or after it, so that the
// response is lost.
type wire struct {
	after bool
	left  atomic.Int64 // messages until the cut, if positive
}

func (w *wire) configure(config *pgxpool.Config) { config.ConnConfig.DialFunc = w.dial }

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &cutConn{conn, w}, err
}

type cutConn struct {
	net.Conn

	wire *wire
}

func (c *cutConn) Write(message []byte) (int, error) {
	if c.wire.left.Add(-1) != 0 {
		return c.Conn.Write(message)
	}
	if c.wire.after {
		_, _ = c.Conn.Write(message)
	}
	_ = c.Conn.Close()
	return 0, net.ErrClosed
}

// killEverywhere kills a run at its first statement, then at its second one, and so on, until one ends before. It
// returns their number.
func killEverywhere(t *testing.T, w *wire, prepare func(), run func() error, check func(n int)) (n int) {
	t.Helper()
	for killed := true; killed; {
		n++
		prepare()
		w.left.Store(int64(n))
		err := run()
		killed = w.left.Swap(0) <= 0
		require.True(t, killed || err == nil, "%v", err)
		check(n)
	}
	require.Greater(t, n, 15, "the statements of a run")
	return n
}

// The worker is killed at each of its statements. The next pass records each change once.
func TestChanges_killedAtEveryStatement(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &wire{after: after}
			f := NewFixture(t, Setup{Concurrent: true, Connections: 2, Configure: w.configure}, CreatePaid(Visa), readEvents)
			n := killEverywhere(t, w, func() { f.Do(refundAtDashboard(1, ""), dispute(1, "won")) }, func() error {
				err := f.Changes.ReadList(t.Context())
				if err == nil {
					_, err = f.Changes.Worker().RunOnce(t.Context())
				}
				return err
			}, func(int) {
				f.Do(readEvents)
				checkChanges(t, f)
				require.Empty(t, staged(f))
			})
			require.Equal(t, n, f.Count("SELECT count(*) FROM audit_records WHERE action = 'refund.succeeded'"))
			require.Equal(t, n, f.Count("SELECT count(*) FROM audit_records WHERE action = 'order.dispute_updated'"))
		})
	}
}

// A comparison that is killed at any statement forgets nothing, and the next one completes its fixes.
func TestRun_killedAtEveryStatement(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &wire{after: after}
			f := NewFixture(t, Setup{
				Configure: w.configure, Jobs: true, Clock: func() time.Time { return time.Now().Add(-time.Hour) },
			}, paid, sql("UPDATE orders SET amount = 4200, created_at = created_at - interval '1 hour', paid_at = paid_at - interval '1 hour'",
				"UPDATE idempotency_keys SET created_at = created_at - interval '1 hour', updated_at = updated_at - interval '1 hour', finished_at = finished_at - interval '1 hour'"))
			fix := func(c *reconcile.Options) { c.Fix = true }
			open := func() []jobs.Job {
				open, err := jobs.Open(t.Context(), f.Pool)
				require.NoError(t, err)
				return open
			}
			killEverywhere(t, w, func() {
				f.Exec("DELETE FROM staged_jobs WHERE kind = 'discrepancy'")
				f.InsertIntent("metadata[order_id]", uuid.NewString())
				f.Transport.Reset()
			}, func() error {
				_, err := compare(f, fix)
				return err
			}, func(n int) {
				if f.Transport.Count("cancel") > 0 {
					require.NotEmpty(t, open(), "recorded before it is fixed, killed at %d", n)
				}
				report, err := compare(f, fix)
				require.NoError(t, err)
				require.Equal(t, 1, report.Open(), "killed at %d: %v", n, inWords(report))
				require.Len(t, open(), 1, "killed at %d", n)
				require.Equal(t, "amount_mismatch", open()[0].LastError)
				require.Equal(t, []string{"amount_mismatch: intent succeeded, order paid, response 201"}, discrepancies(f), "the intent is cancelled")
			})
		})
	}
}
