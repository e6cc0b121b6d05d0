package idempotencytest

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Fault is what happens to a COMMIT.
type Fault int

// The connection breaks before or after the server has seen the COMMIT, or the server warns
// that the wait for the standby was cancelled.
const (
	CutBefore Fault = iota + 1
	CutAfter
	NotReplicated
)

// Wire counts what a pool sends and breaks a chosen COMMIT.
type Wire struct {
	roundTrips atomic.Int64
	strikeIn   atomic.Int64 // COMMITs until the fault, if positive
	fault      Fault

	mu         sync.Mutex
	statements map[string]int
}

// Configure routes the pool's traffic through w and disables pings.
func (w *Wire) Configure(config *pgxpool.Config) {
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	config.ConnConfig.Tracer = (*tracer)(w)
	w.Reset()
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &cutConn{Conn: conn}, err
	}
}

// RoundTrips counts the statements and batches, without the preparation of a statement.
func (w *Wire) RoundTrips() int { return int(w.roundTrips.Load()) }

// Commits counts the COMMITs that succeeded.
func (w *Wire) Commits() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.statements["COMMIT"] + w.statements["commit"] // pgx writes its own in lower case
}

// Count counts the statements that contain text.
func (w *Wire) Count(text string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for statement, times := range w.statements {
		if strings.Contains(statement, text) {
			n += times
		}
	}
	return n
}

// Reset sets the counts to zero.
func (w *Wire) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.statements = map[string]int{}
	w.roundTrips.Store(0)
}

// Strike arms a fault for the n-th COMMIT from now on that is sent in a batch.
func (w *Wire) Strike(n int, fault Fault) {
	w.fault = fault
	w.strikeIn.Store(int64(n))
}

// Struck reports whether the armed fault has happened.
func (w *Wire) Struck() bool { return w.strikeIn.Load() <= 0 }

// tracer has the methods that pgx calls.
type tracer Wire

func (w *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	w.roundTrips.Add(1)
	w.count(data.SQL)
	return ctx
}

func (w *tracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	w.roundTrips.Add(1)
	queries := data.Batch.QueuedQueries
	if queries[len(queries)-1].SQL != "COMMIT" || w.strikeIn.Add(-1) != 0 {
		return ctx
	}
	switch socket := conn.PgConn().Conn().(*cutConn); w.fault {
	case CutBefore:
		_ = socket.Close()
	case CutAfter:
		socket.cut.Store(true)
	case NotReplicated:
		conn.Config().OnNotice(conn.PgConn(), &pgconn.Notice{Routine: "SyncRepWaitForLSN"})
	}
	return ctx
}

func (w *tracer) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if data.Err == nil {
		w.count(data.SQL)
	}
}

func (w *tracer) count(statement string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.statements[statement]++
}

func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// cutConn breaks instead of returning the response to a COMMIT.
type cutConn struct {
	net.Conn
	cut  atomic.Bool
	mu   sync.Mutex // pgx reads in two goroutines while it closes a slow connection
	read []byte
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.cut.Load() {
		return n, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = append(c.read, b[:n]...)
	if bytes.Contains(c.read, []byte("COMMIT\x00")) {
		return 0, io.EOF
	}
	return n, err
}
