package orders_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// wire cuts a connection to the database at a message of the program: before it, or after it, so that the
// response is lost.
type wire struct {
	mu    sync.Mutex
	left  int // messages; 0: none is cut, -1: one was cut
	after bool
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &cutConn{conn, w}, err
}

func (w *wire) cutAt(n int, after bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.after = n, after
}

// reset lets new connections work, and reports whether one was cut.
func (w *wire) reset() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	cut := w.left < 0
	w.left = 0
	return cut
}

func (w *wire) reached() (cut, after bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left <= 0 {
		return false, false
	}
	w.left--
	if w.left == 0 {
		w.left = -1
		return true, w.after
	}
	return false, false
}

type cutConn struct {
	net.Conn

	wire *wire
}

func (c *cutConn) Write(message []byte) (int, error) {
	cut, after := c.wire.reached()
	if !cut {
		return c.Conn.Write(message)
	}
	if after {
		_, _ = c.Conn.Write(message)
	}
	_ = c.Conn.Close()
	return 0, net.ErrClosed
}

// The completer is killed at each of its statements. The next pass records each change once.
func TestChanges_killedAtEveryStatement(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &wire{}
			cut := func(c *pgxpool.Config) { c.ConnConfig.DialFunc = w.dial }
			f := newFixture(t, options{concurrent: true, connections: 2, configure: cut}, createPaid(visa), readEvents)
			n := 0
			for killed := true; killed; {
				n++
				f.do(refundAtDashboard(1, ""), dispute(1, "won"))
				w.cutAt(n, after)
				err := f.Changes.ReadList(t.Context())
				if err == nil {
					_, err = f.Changes.Worker().RunOnce(t.Context())
				}
				killed = w.reset()
				require.True(t, killed || err == nil, "%v", err)
				f.do(readEvents)
				checkChanges(t, f)
				require.Empty(t, f.staged())
			}
			require.Greater(t, n, 15, "the statements of a pass")
			require.Equal(t, n, f.count("SELECT count(*) FROM audit_records WHERE action = 'refund.succeeded'"))
			require.Equal(t, n, f.count("SELECT count(*) FROM audit_records WHERE action = 'order.dispute_updated'"))
		})
	}
}
