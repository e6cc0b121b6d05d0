//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/internal/subprocess"
)

// These are the shortest durations in the order of R9 that the provider's delays allow.
// Leases expire during the run.
const (
	stripeTimeout  = 2 * time.Second
	lockTimeout    = 4 * time.Second
	completerGrace = 6 * time.Second
)

// keyRetention is longer than any run. The reaper deletes only the keys that age changes.
const keyRetention = "3h"

// reconcileSince is longer than any run, and less than CHARGE_WINDOW.
const reconcileSince = "1h"

// accounts is the number of accounts. They use the same keys.
const accounts = 3

type system struct {
	folder    string // logs and PostgreSQL's data
	program   string
	postgres  *embeddedpg.Server
	pool      *pgxpool.Pool
	provider  *provider
	mail      *mailServer
	addresses []string // of the API
	apiKeys   []string // by account
	environ   []string
	services  []*service
	running   sync.WaitGroup
	stop      context.CancelFunc // of the services

	mu         sync.Mutex
	stopErrors error
}

func startSystem(ctx context.Context, seed uint64, out io.Writer) (*system, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &system{program: filepath.Join(filepath.Dir(executable), "orders")}
	if err := s.start(ctx, seed, out); err != nil {
		return nil, errors.Join(err, s.close(), os.RemoveAll(s.folder))
	}
	return s, nil
}

func (s *system) start(ctx context.Context, seed uint64, out io.Writer) error {
	cache, err := embeddedpg.CacheDir()
	if err != nil {
		return err
	}
	if s.folder, err = os.MkdirTemp(cache, "soak-"); err != nil {
		return err
	}
	if err := os.Chmod(s.folder, 0o755); err != nil { //nolint:gosec // the server's OS user needs access
		return err
	}
	s.postgres, err = embeddedpg.Start(ctx, embeddedpg.Options{
		BinDir:   os.Getenv("PG_BIN"),
		DataDir:  filepath.Join(s.folder, "postgres"), // a folder that is kept is durable
		Settings: map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"},
		Logger:   slog.New(slog.DiscardHandler),
		Notice:   func(line string) { fmt.Fprintln(out, line) },
	})
	if err != nil {
		return err
	}
	database := s.postgres.URL("postgres")
	if s.pool, err = pgxpool.New(ctx, database); err != nil {
		return err
	}
	for range 2 {
		address, err := subprocess.FreeAddress(ctx)
		if err != nil {
			return err
		}
		s.addresses = append(s.addresses, address)
	}
	if s.provider, err = startProvider(ctx, seed, s.addresses); err != nil {
		return err
	}
	if s.mail, err = startMail(); err != nil {
		return err
	}
	s.environ = []string{
		"DATABASE_URL=" + database,
		"STRIPE_SECRET_KEY=sk_test_stand_in",
		"STRIPE_API_BASE=" + s.provider.url,
		"STRIPE_WEBHOOK_SECRET=" + webhookSecret,
		"SMTP_URL=smtp://" + s.mail.address,
		"RECEIPTS_FROM=shop@example.com",
		"ADMIN_ADDR=",
		"LOG_LEVEL=warn",
		"STRIPE_TIMEOUT=" + stripeTimeout.String(),
		"LOCK_TIMEOUT=" + lockTimeout.String(),
		"COMPLETER_GRACE=" + completerGrace.String(),
		"CHARGE_WINDOW=2h", // longer than any run, so no order is too old to be charged
		"KEY_RETENTION=" + keyRetention,
	}
	if _, err := s.command(ctx, "migrate", "up"); err != nil {
		return err
	}
	for account := range accounts {
		text, err := s.command(ctx, "accounts", "create", "--name", fmt.Sprintf("account %d", account))
		if err != nil {
			return err
		}
		words := strings.Fields(text)
		s.apiKeys = append(s.apiKeys, words[len(words)-1])
	}
	s.startServices(ctx)
	return nil
}

// Clients retry until the API listens.
func (s *system) startServices(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	add := func(kind string, environ []string, args ...string) {
		next := &service{kind: kind, process: &subprocess.Process{
			Name:       kind,
			Executable: s.program,
			Args:       args,
			Environ:    append(environ, s.environ...),
			Log:        filepath.Join(s.folder, fmt.Sprintf("%s-%d.log", kind, len(s.services))),
		}}
		s.services = append(s.services, next)
		s.running.Go(func() {
			err := next.run(ctx)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.stopErrors = errors.Join(s.stopErrors, err)
		})
	}
	for _, address := range s.addresses {
		add("serve", []string{"LISTEN_ADDR=" + address}, "serve")
	}
	for range 2 {
		add("completer", nil, "completer", "--every", "1s")
	}
	add("worker", nil, "worker", "--every", "200ms")
	add("reaper", nil, "reaper", "--every", "2s")
}

func (s *system) command(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, s.program, args...) //nolint:gosec // our own program
	command.Env = s.environ
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		err = fmt.Errorf("orders %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), err
}

// unfinishedQuery selects rows that must finish without an operator.
const unfinishedQuery = `
SELECT concat_ws(' ', 'unfinished key', id, recovery_point, last_error) FROM idempotency_keys WHERE finished_at IS NULL
UNION ALL
SELECT concat_ws(' ', 'key that is not reaped', id) FROM idempotency_keys WHERE finished_at < now() - interval '` + keyRetention + `'
UNION ALL
SELECT concat_ws(' ', 'order', id, status) FROM orders WHERE status IN ('pending', 'requires_action')
UNION ALL
SELECT concat_ws(' ', 'job', id, kind, args, last_error) FROM staged_jobs`

// refundsQuery selects refunds that reconcile --fix should have settled.
const refundsQuery = `SELECT concat_ws(' ', 'refund', id, status) FROM refunds WHERE status <> 'succeeded'`

func (s *system) rows(ctx context.Context, query string, args ...any) ([]string, error) {
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// age moves the finished key of an order past its retention, so that the reaper deletes
// it.
func (s *system) age(ctx context.Context, email string) {
	for ctx.Err() == nil {
		_, err := s.pool.Exec(ctx, `
UPDATE idempotency_keys k
   SET finished_at = k.finished_at - interval '`+keyRetention+`', created_at = k.created_at - interval '`+keyRetention+`'
  FROM orders o
 WHERE o.email = $1 AND k.account_id = o.account_id AND k.idempotency_key = o.idempotency_key
   AND k.finished_at > now() - interval '`+keyRetention+`'`, email)
		if err == nil {
			return
		}
		pause(ctx, time.Second) // the database may have crashed
	}
}

func (s *system) close() error {
	if s.stop != nil {
		s.stop()
	}
	s.running.Wait()
	err := s.stopErrors
	if s.pool != nil {
		s.pool.Close()
	}
	if s.provider != nil {
		err = errors.Join(err, s.provider.close())
	}
	if s.mail != nil {
		err = errors.Join(err, s.mail.server.Close())
	}
	if s.postgres != nil {
		err = errors.Join(err, s.postgres.Stop())
	}
	return err
}

// service is a process that is restarted when it exits.
type service struct {
	kind    string
	process *subprocess.Process

	mu      sync.Mutex
	pid     int  // 0: not running
	stopped bool // by SIGSTOP
}

// run restarts the process until ctx ends, then stops it.
func (s *service) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.process.Start(); err != nil {
			return err
		}
		s.setPID(s.process.PID())
		ended := make(chan struct{})
		go func() {
			_ = s.process.Wait() // it was killed, or the database was unavailable
			s.setPID(0)
			close(ended)
		}()
		select {
		case <-ended:
			pause(ctx, 100*time.Millisecond)
		case <-ctx.Done():
			err := s.process.Stop()
			<-ended
			return err
		}
	}
	return nil
}

func (s *service) setPID(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pid = pid
}

// mailServer counts receipts by recipient. Some get a temporary error, and some are
// accepted without a response.
type mailServer struct {
	address string
	server  *smtp.Server

	mu       sync.Mutex
	receipts map[string]int
	mails    int
}

func startMail() (*mailServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &mailServer{address: listener.Addr().String(), receipts: map[string]int{}}
	m.server = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &mailSession{server: m}, nil }))
	m.server.Domain = "mail.example.com"
	m.server.ErrorLog = log.New(io.Discard, "", 0)
	go func() { _ = m.server.Serve(listener) }()
	return m, nil
}

func (m *mailServer) accepted() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.receipts)
}

type mailSession struct {
	server *mailServer
	to     string
}

func (*mailSession) Reset()                               {}
func (*mailSession) Logout() error                        { return nil }
func (*mailSession) Mail(string, *smtp.MailOptions) error { return nil }

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	return nil
}

// Data rejects every 50th mail, and accepts another one but returns an error.
func (s *mailSession) Data(r io.Reader) error {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	m := s.server
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mails++
	busy := &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "try again later"}
	if m.mails%50 == 0 {
		return busy
	}
	m.receipts[s.to]++
	if m.mails%50 == 25 {
		return busy // the worker sends this receipt again
	}
	return nil
}
