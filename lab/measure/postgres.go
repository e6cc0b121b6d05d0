// Package measure has what the programs bench, peers and steady measure with: a durable
// PostgreSQL, the CPU times of processes, a proxy that counts round trips, and the load.
//
// [Closed] is a closed loop: each client sends the next request after the last response.
// It measures throughput. It cannot overload a server, because its rate decreases with
// the latency.
//
// [Open] is an open loop: it sends at a constant rate, independent of the responses. The
// latency of a request counts from its due time. Otherwise a late generator would hide
// latency that clients see (coordinated omission).
package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/procfs"

	"example.com/orders-api/internal/embeddedpg"
)

// durable returns PostgreSQL's defaults for durable commits. The sizes prevent
// checkpoints within a window.
func durable() map[string]string {
	return map[string]string{
		"fsync":              "on",
		"synchronous_commit": "on",
		"full_page_writes":   "on",
		"shared_buffers":     "512MB",
		"max_wal_size":       "4GB",
	}
}

// PostgreSQL is a private server with durable settings. Folder also has room for logs.
type PostgreSQL struct {
	*embeddedpg.Server
	Folder string

	admin *pgxpool.Pool
}

// Start starts the server in a new folder, and prints its version.
func Start(ctx context.Context, out io.Writer) (*PostgreSQL, error) {
	p := &PostgreSQL{}
	if err := p.start(ctx, out); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *PostgreSQL) start(ctx context.Context, out io.Writer) error {
	cache, err := embeddedpg.CacheDir()
	if err != nil {
		return err
	}
	// A folder in memory would make COMMIT too fast. This one is on a disk.
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // the server's OS user needs access
		return err
	}
	if p.Folder, err = os.MkdirTemp(cache, "bench-"); err != nil {
		return err
	}
	if err := os.Chmod(p.Folder, 0o755); err != nil { //nolint:gosec // as above
		return err
	}
	p.Server, err = embeddedpg.Start(ctx, embeddedpg.Options{
		BinDir:   os.Getenv("PG_BIN"),
		DataDir:  filepath.Join(p.Folder, "postgres"),
		Settings: durable(),
		Logger:   slog.New(slog.DiscardHandler),
		Notice:   func(line string) { fmt.Fprintln(out, line) },
	})
	if err != nil {
		return err
	}
	if p.admin, err = pgxpool.New(ctx, p.URL("postgres")); err != nil {
		return err
	}
	var version string
	if err := p.admin.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return err
	}
	fmt.Fprintf(out, "PostgreSQL %s, durable; %s %s/%s, %d cores for everything\n",
		version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	return nil
}

// Create creates a database and returns its URL.
func (p *PostgreSQL) Create(ctx context.Context, name string) (string, error) {
	_, err := p.admin.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	return p.URL(name), err
}

// WAL returns the bytes of WAL written so far.
func (p *PostgreSQL) WAL(ctx context.Context) (int64, error) {
	var bytes int64
	err := p.admin.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&bytes)
	return bytes, err
}

// WALSince divides the WAL since a position into records and images of whole pages, in bytes. The
// position "" only returns the present one.
func (p *PostgreSQL) WALSince(ctx context.Context, position string) (now string, records, images float64, err error) {
	if position == "" {
		_, err = p.admin.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_walinspect")
		if err == nil {
			err = p.admin.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&now)
		}
		return now, 0, 0, err
	}
	err = p.admin.QueryRow(ctx, `
SELECT now::text, sum(record_size)::float8, sum(fpi_size)::float8
FROM pg_current_wal_flush_lsn() now, pg_get_wal_stats($1::text::pg_lsn, now) GROUP BY now`, position).Scan(&now, &records, &images)
	return now, records, images, err
}

// Close stops the server and removes the folder.
func (p *PostgreSQL) Close() error {
	var err error
	if p.admin != nil {
		p.admin.Close()
	}
	if p.Server != nil {
		err = errors.Join(err, p.Stop())
	}
	if p.Folder != "" {
		err = errors.Join(err, os.RemoveAll(p.Folder))
	}
	return err
}

// CountingProxy is a TCP proxy for PostgreSQL that counts round trips and commits.
type CountingProxy struct {
	URL        string       // of the database through this proxy
	RoundTrips atomic.Int64 // each ends with ReadyForQuery
	Commits    atomic.Int64

	listener net.Listener
	target   string
}

// NewCountingProxy returns a proxy for the database.
func NewCountingProxy(ctx context.Context, database string) (*CountingProxy, error) {
	u, err := url.Parse(database)
	if err != nil {
		return nil, err
	}
	p := &CountingProxy{target: u.Host}
	if p.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	go p.serve(ctx)
	u.Host = p.listener.Addr().String()
	p.URL = u.String()
	return p, nil
}

// Close ends the proxy. Open connections stay.
func (p *CountingProxy) Close() error { return p.listener.Close() }

// Reset sets both counts to zero.
func (p *CountingProxy) Reset() {
	p.RoundTrips.Store(0)
	p.Commits.Store(0)
}

func (p *CountingProxy) serve(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(ctx, "tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		go p.forward(client, server)
	}
}

func (p *CountingProxy) forward(client, server net.Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	both.Go(func() {
		p.countMessages(io.TeeReader(server, client))
		_ = client.Close()
	})
	both.Wait()
}

func (p *CountingProxy) countMessages(stream io.Reader) {
	messages := pgproto3.NewFrontend(stream, nil)
	for {
		message, err := messages.Receive()
		if err != nil {
			// Unknown message: forward the rest without counting.
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, net.ErrClosed) {
				_, _ = io.Copy(io.Discard, stream)
			}
			return
		}
		switch m := message.(type) {
		case *pgproto3.ReadyForQuery:
			p.RoundTrips.Add(1)
		case *pgproto3.CommandComplete:
			if string(m.CommandTag) == "COMMIT" {
				p.Commits.Add(1)
			}
		}
	}
}

// userHZ is the number of clock ticks per second in /proc/PID/stat on Linux.
const userHZ = 100

// CPU returns the CPU seconds of processes, by their ids. Those of the server include its
// backends. On a system without /proc all are zero.
func (p *PostgreSQL) CPU() (map[int]float64, error) {
	seconds := map[int]float64{}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return seconds, nil //nolint:nilerr // not Linux
	}
	all, err := fs.AllProcs()
	if err != nil {
		return nil, err
	}
	for _, process := range all {
		stat, err := process.Stat()
		if err != nil {
			continue // has exited
		}
		switch server := p.PID(); {
		case process.PID == server:
			seconds[server] += stat.CPUTime() + float64(stat.CUTime+stat.CSTime)/userHZ // exited backends
		case stat.PPID == server:
			seconds[server] += stat.CPUTime()
		default:
			seconds[process.PID] = stat.CPUTime()
		}
	}
	return seconds, nil
}
