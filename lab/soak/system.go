//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/internal/subprocess"
	"example.com/orders-api/lab/soak/history"
)

// These are the shortest durations in their order (R9) that the provider's delays allow.
// Leases expire during the run, and so does the time in which a customer can approve a
// payment.
const (
	stepTimeout    = 2 * time.Second
	leaseDuration  = 4 * time.Second
	completerGrace = 6 * time.Second
	chargeWindow   = 90 * time.Second
)

// keyRetention is longer than any run. The reaper deletes only the keys that age changes.
const keyRetention = "3h"

// reconcileSince is longer than any run.
const reconcileSince = "1h"

// accounts is the number of accounts. They use the same keys.
const accounts = 3

type system struct {
	folder    string // logs and PostgreSQL's data
	program   string
	history   *history.Recorder
	database  *database
	provider  *provider
	mail      *mailServer
	addresses []string // of the API
	apiKeys   []string // by account
	accounts  []uuid.UUID
	transport *transport
	shop      *storefront
	endpoint  *endpoint
	environ   []string // without DATABASE_URL
	services  []*service
	running   sync.WaitGroup
	stop      context.CancelFunc // of the services

	mu         sync.Mutex
	stopErrors error
}

func startSystem(ctx context.Context, o options, out io.Writer) (*system, error) {
	s := &system{program: o.program}
	if err := s.start(ctx, o, out); err != nil {
		return nil, errors.Join(err, s.close(), os.RemoveAll(s.folder))
	}
	return s, nil
}

func (s *system) start(ctx context.Context, o options, out io.Writer) error {
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
	if s.history, err = history.Create(cmp.Or(o.history, filepath.Join(s.folder, "history.jsonl"))); err != nil {
		return err
	}
	if s.database, err = startDatabase(ctx, s.folder, out); err != nil {
		return err
	}
	for range 2 {
		address, err := subprocess.FreeAddress(ctx)
		if err != nil {
			return err
		}
		s.addresses = append(s.addresses, address)
	}
	if s.provider, err = startProvider(ctx, o.seed, s.addresses); err != nil {
		return err
	}
	if s.mail, err = startMail(); err != nil {
		return err
	}
	if s.endpoint, err = startEndpoint(ctx, o); err != nil {
		return err
	}
	s.environ = []string{
		"STRIPE_SECRET_KEY=sk_test_fake",
		"STRIPE_API_BASE=" + s.provider.url,
		"STRIPE_WEBHOOK_SECRET=" + webhookSecret,
		"SMTP_URL=smtp://" + s.mail.address,
		"RECEIPTS_FROM=shop@example.com",
		"ADMIN_ADDR=",
		"EVENTS_URL=" + s.endpoint.url,
		"EVENTS_SECRET=" + eventSecret,
		"LOG_LEVEL=warn",
		"STEP_TIMEOUT=" + stepTimeout.String(),
		"LEASE_DURATION=" + leaseDuration.String(),
		"COMPLETER_GRACE=" + completerGrace.String(),
		"CHARGE_WINDOW=" + chargeWindow.String(),
		"KEY_RETENTION=" + keyRetention,
	}
	if _, err := s.command(ctx, "migrate", "up"); err != nil {
		return err
	}
	for account := range accounts {
		id, apiKey, err := s.createAccount(ctx, fmt.Sprintf("account %d", account))
		if err != nil {
			return err
		}
		s.accounts, s.apiKeys = append(s.accounts, id), append(s.apiKeys, apiKey)
	}
	s.transport = &transport{addresses: s.addresses, random: random(o.seed, transportStream), base: &http.Transport{MaxIdleConnsPerHost: 100}}
	if s.shop, err = startShop(ctx, s, s.transport); err != nil {
		return err
	}
	s.endpoint.shop.Store(s.shop)
	if o.failovers > 0 {
		if err := s.database.addStandby(ctx); err != nil {
			return err
		}
	}
	s.addServices()
	return s.startServices(ctx)
}

// createAccount returns a new account and its API key.
func (s *system) createAccount(ctx context.Context, name string) (id uuid.UUID, apiKey string, err error) {
	text, err := s.command(ctx, "accounts", "create", "--name", name)
	if err != nil {
		return id, "", err
	}
	words := strings.Fields(text)
	err = s.database.pool.Load().QueryRow(ctx, "SELECT id FROM accounts WHERE name = $1", name).Scan(&id)
	return id, words[len(words)-1], err
}

func (s *system) addServices() {
	add := func(kind string, environ []string, args ...string) {
		s.services = append(s.services, &service{kind: kind, environ: environ, process: &subprocess.Process{
			Name:       kind,
			Executable: s.program,
			Args:       args,
			Log:        filepath.Join(s.folder, fmt.Sprintf("%s-%d.log", kind, len(s.services))),
		}})
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

// startServices does not wait: clients retry until the API listens. The services run until
// stopServices, because the context of a fault ends earlier.
func (s *system) startServices(ctx context.Context) error {
	environ, err := s.environment()
	if err != nil {
		return err
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	for _, next := range s.services {
		next.process.Environ = slices.Concat(next.environ, environ)
		s.running.Go(func() {
			err := next.run(ctx)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.stopErrors = errors.Join(s.stopErrors, err)
		})
	}
	return nil
}

func (s *system) stopServices() {
	s.stop()
	s.running.Wait()
}

func (s *system) environment() ([]string, error) {
	database, err := s.database.url()
	return append(slices.Clone(s.environ), "DATABASE_URL="+database), err
}

func (s *system) command(ctx context.Context, args ...string) (string, error) {
	environ, err := s.environment()
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, s.program, args...) //nolint:gosec // our own program
	command.Env = environ
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
SELECT concat_ws(' ', 'key that is not reaped', id) FROM idempotency_keys WHERE expired_at IS NULL AND finished_at < now() - interval '` + keyRetention + `'
UNION ALL
SELECT concat_ws(' ', 'order', id, status) FROM orders WHERE status IN ('pending', 'requires_action')
UNION ALL
SELECT concat_ws(' ', 'job', id, kind, args, last_error) FROM staged_jobs WHERE kind <> 'discrepancy'`

// endPauses makes jobs due that would wait for longer than the soak does, because the endpoint's outage and random
// rejections have used up their short pauses. The pause exceeds each lease.
const endPauses = `
UPDATE staged_jobs
   SET run_at = now()
 WHERE failed_at IS NULL
   AND run_at > now() + interval '2 minutes'
RETURNING id::text`

// refundsQuery selects refunds that reconcile --fix should have settled. After lost rows the
// provider rejects some, which check finds in the responses.
const refundsQuery = `SELECT concat_ws(' ', 'refund', id, status) FROM refunds WHERE status NOT IN ('succeeded', 'failed')`

// age moves the finished key of an order past its retention, so that the reaper deletes
// it.
func (s *system) age(ctx context.Context, p *purchase) {
	aged := history.Operation{Kind: history.Age, Account: p.account, Key: string(p.key), Call: s.history.At(time.Now())}
	defer func() {
		aged.Return = s.history.At(time.Now())
		s.history.Add(aged)
	}()
	for ctx.Err() == nil {
		_, err := s.database.pool.Load().Exec(ctx, `
UPDATE idempotency_keys k
   SET finished_at = k.finished_at - interval '`+keyRetention+`', created_at = k.created_at - interval '`+keyRetention+`'
  FROM orders o
 WHERE o.email = $1 AND k.account_id = o.account_id AND k.idempotency_key = o.idempotency_key
   AND k.finished_at > now() - interval '`+keyRetention+`'`, p.email)
		if err == nil {
			return
		}
		pause(ctx, time.Second) // the database may have crashed
	}
}

func (s *system) close() error {
	if s.stop != nil {
		s.stopServices()
	}
	err := s.stopErrors
	if s.history != nil {
		err = errors.Join(err, s.history.Close())
	}
	if s.shop != nil {
		err = errors.Join(err, s.shop.close())
	}
	if s.endpoint != nil {
		err = errors.Join(err, s.endpoint.server.Close())
	}
	if s.provider != nil {
		err = errors.Join(err, s.provider.close())
	}
	if s.mail != nil {
		err = errors.Join(err, s.mail.server.Close())
	}
	if s.database != nil {
		err = errors.Join(err, s.database.close())
	}
	return err
}

// service is a process that is restarted when it exits.
type service struct {
	kind    string
	environ []string // its own
	process *subprocess.Process

	mu  sync.Mutex
	pid int // 0: not running
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
