//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/embeddedpg"
)

// database is a durable PostgreSQL server and, after addStandby, its asynchronous
// standby.
type database struct {
	folder  string
	out     io.Writer
	servers int // so far

	primary, standby *embeddedpg.Server
	pool             atomic.Pointer[pgxpool.Pool] // of the primary; a failover replaces it
}

func startDatabase(ctx context.Context, folder string, out io.Writer) (*database, error) {
	d := &database{folder: folder, out: out}
	var err error
	if d.primary, err = d.start(ctx, d.nextFolder()); err != nil {
		return d, err
	}
	return d, d.connect(ctx)
}

func (d *database) nextFolder() string {
	d.servers++
	return filepath.Join(d.folder, fmt.Sprintf("postgres-%d", d.servers))
}

func (d *database) start(ctx context.Context, folder string) (*embeddedpg.Server, error) {
	return embeddedpg.Start(ctx, embeddedpg.Options{
		BinDir:  os.Getenv("PG_BIN"),
		DataDir: folder, // a folder that is kept is durable
		Settings: map[string]string{
			"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
			"wal_keep_size": "256MB", // the checkpoint after a crash must keep what the standby still needs
		},
		Logger: slog.New(slog.DiscardHandler),
		Notice: func(line string) { fmt.Fprintln(d.out, line) },
	})
}

// url selects the writable server, so that a failover needs no new configuration.
func (d *database) url() (string, error) {
	if d.standby == nil {
		return d.primary.URL("postgres"), nil
	}
	first, err1 := url.Parse(d.primary.URL("postgres"))
	second, err2 := url.Parse(d.standby.URL("postgres"))
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	first.Host += "," + second.Host
	return first.String() + "&target_session_attrs=read-write", nil
}

func (d *database) connect(ctx context.Context) error {
	address, err := d.url()
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return err
	}
	if former := d.pool.Swap(pool); former != nil {
		former.Close()
	}
	return nil
}

func (d *database) rows(ctx context.Context, query string, args ...any) ([]string, error) {
	rows, err := d.pool.Load().Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// addStandby copies the primary with its roles, so the passfile remains valid.
func (d *database) addStandby(ctx context.Context) error {
	folder := d.nextFolder()
	data := filepath.Join(folder, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // the server's OS user needs access
		return err
	}
	passfile := filepath.Join(d.primary.Dir(), "pgpass")
	copied := exec.CommandContext(ctx, filepath.Join(d.primary.BinDir(), "pg_basebackup"), //nolint:gosec // PostgreSQL's own program
		"-d", d.primary.URL("postgres"), "-D", data, "-R", "-X", "stream", "-c", "fast")
	// The server's OS user may be unable to read the passfile, so the standby's
	// configuration gets the password itself.
	copied.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "PGPASSWORD=" + d.pool.Load().Config().ConnConfig.Password}
	if printed, err := copied.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w\n%s", err, printed)
	}
	err := errors.Join(os.Link(passfile, filepath.Join(folder, "pgpass")), chownAs(filepath.Join(d.primary.Dir(), "data"), data))
	if err != nil {
		return err
	}
	if d.standby, err = d.start(ctx, folder); err != nil {
		return err
	}
	return d.connect(ctx)
}

// chownAs gives a folder the owner of another one.
func chownAs(model, folder string) error {
	info, err := os.Stat(model)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.ErrUnsupported
	}
	return filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(owner.Uid), int(owner.Gid))
	})
}

// failOver stops the process that sends rows to the standby, lets the primary commit for a
// second and at least a few orders, kills the primary and promotes the standby. It returns a
// time from which rows may be lost: the standby has all that were committed before.
func (d *database) failOver(ctx context.Context) (from time.Time, err error) {
	if err := d.until(ctx, time.Minute, "SELECT ''"); err != nil { // the database may still recover
		return from, err
	}
	from = time.Now()
	var written string
	if err := d.pool.Load().QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&written); err != nil {
		return from, err
	}
	if err := d.until(ctx, time.Minute, `
SELECT state
  FROM pg_stat_replication
 WHERE state = 'streaming' AND flush_lsn >= $1::text::pg_lsn`, written); err != nil {
		return from, fmt.Errorf("the standby does not follow: %w", err)
	}
	if err := d.signal(ctx, syscall.SIGSTOP, "SELECT pid::text FROM pg_stat_replication"); err != nil {
		return from, err
	}
	stopped := time.Now()
	pause(ctx, time.Second)
	// After a crash of the database it takes longer, and at the end of a run it never happens.
	_ = d.until(ctx, 10*time.Second, "SELECT id::text FROM orders WHERE paid_at > $1 OFFSET 5 LIMIT 1", stopped)
	killed := d.primary
	if err := d.killAll(ctx, func(first *os.Process) error { return first.Kill() }); err != nil {
		return from, err
	}
	<-killed.Exited()
	_ = killed.Stop() // releases its files; it has exited
	promoted, err := pgx.Connect(ctx, d.standby.URL("postgres"))
	if err != nil {
		return from, err
	}
	_, err = promoted.Exec(ctx, "SELECT pg_promote()")
	d.primary, d.standby = d.standby, nil
	return from, errors.Join(err, promoted.Close(ctx), d.connect(ctx))
}

// killAll lists the processes of the primary, lets first act on the main one, and then
// kills the others.
func (d *database) killAll(ctx context.Context, first func(*os.Process) error) error {
	main, err := os.FindProcess(d.primary.PID())
	if err != nil {
		return err
	}
	const processes = "SELECT pid::text FROM pg_stat_activity"
	if err := d.until(ctx, time.Minute, processes); err != nil { // the database may still recover
		return err
	}
	pids, err := d.rows(ctx, processes)
	if err != nil {
		return err
	}
	if err := first(main); err != nil {
		return err
	}
	return signalAll(syscall.SIGKILL, pids)
}

func (d *database) signal(ctx context.Context, signal syscall.Signal, query string) error {
	pids, err := d.rows(ctx, query)
	if err != nil {
		return err
	}
	return signalAll(signal, pids)
}

func signalAll(signal syscall.Signal, pids []string) error {
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) { // it may have exited
			return err
		}
	}
	return nil
}

// until repeats a query until it returns a row.
func (d *database) until(ctx context.Context, limit time.Duration, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		rows, err := d.rows(ctx, query, args...)
		if err == nil && len(rows) > 0 {
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return errors.Join(err, ctx.Err())
		}
	}
}

func (d *database) close() error {
	if pool := d.pool.Load(); pool != nil {
		pool.Close()
	}
	var err error
	for _, server := range []*embeddedpg.Server{d.standby, d.primary} {
		if server != nil {
			err = errors.Join(err, server.Stop())
		}
	}
	return err
}
