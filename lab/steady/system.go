package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"example.com/orders-api/internal/subprocess"
	"example.com/orders-api/lab/measure"
)

// system is the service as it runs in production, on this machine.
type system struct {
	*measure.PostgreSQL
	programs           string // folder
	address, stripeURL string // of API and fake
	apiKey             string
	database           string // URL
	environ            []string
	pool               *pgxpool.Pool
	stripe             *subprocess.Process
	services           []*subprocess.Process
	admin              []string // addresses, by service
	mails              atomic.Int64
	closeMail          func() error
	cronRuns           int
	cronErrors         []error
	walPosition        string
	records, images    float64 // bytes of WAL up to it
}

func start(ctx context.Context, programs string, out io.Writer) (*system, error) {
	postgres, err := measure.Start(ctx, out)
	if err != nil {
		return nil, err
	}
	s := &system{PostgreSQL: postgres, programs: programs, closeMail: func() error { return nil }}
	if err := s.startAll(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *system) startAll(ctx context.Context) error {
	var err error
	if s.database, err = s.Create(ctx, "steady"); err != nil {
		return err
	}
	if s.pool, err = pgxpool.New(ctx, s.database+"&application_name=steady"); err != nil {
		return err
	}
	stripe, err := subprocess.FreeAddress(ctx)
	if err != nil {
		return err
	}
	s.stripeURL = "http://" + stripe
	s.stripe = s.process("stripetest", "-addr", stripe)
	if err := s.stripe.Serve(ctx, s.stripeURL+"/v3/"); err != nil {
		return err
	}
	mail, err := s.startMail(ctx)
	if err != nil {
		return err
	}
	if s.address, err = subprocess.FreeAddress(ctx); err != nil {
		return err
	}
	s.environ = []string{
		"DATABASE_URL=" + s.database + "&pool_max_conn_idle_time=1m", // less than the pause
		"LISTEN_ADDR=" + s.address,
		"STRIPE_SECRET_KEY=sk_test_fake", "STRIPE_API_BASE=" + s.stripeURL,
		"SMTP_URL=smtp://" + mail, "RECEIPTS_FROM=shop@example.com", "LOG_LEVEL=warn",
		"STEP_TIMEOUT=2s", "LEASE_DURATION=5s", "COMPLETER_GRACE=10s", "CHARGE_WINDOW=2m", "KEY_RETENTION=5m",
	}
	if _, err := s.command(ctx, "migrate", "up"); err != nil {
		return err
	}
	text, err := s.command(ctx, "accounts", "create", "--name", "steady")
	if err != nil {
		return err
	}
	lines := strings.Fields(text)
	s.apiKey = lines[len(lines)-1]
	for _, args := range [][]string{{"serve"}, {"worker"}, {"completer", "--every", "20s"}, {"reaper", "--every", "20s"}} {
		admin, err := subprocess.FreeAddress(ctx)
		if err != nil {
			return err
		}
		service := s.process("orders", args...)
		service.Name = args[0]
		service.Environ = append([]string{"ADMIN_ADDR=" + admin}, s.environ...)
		if err := service.Serve(ctx, "http://"+admin+"/healthz"); err != nil {
			return err
		}
		s.services, s.admin = append(s.services, service), append(s.admin, admin)
	}
	return nil
}

func (s *system) process(name string, args ...string) *subprocess.Process {
	return &subprocess.Process{
		Name: name, Executable: filepath.Join(s.programs, name), Args: args,
		Log: filepath.Join(s.Folder, name+".log"),
	}
}

func (s *system) command(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(s.programs, "orders"), args...) //nolint:gosec // our own program
	command.Env = s.environ
	out, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("orders %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// cron runs what deploy/ starts as cron jobs, and an operator's commands, every minute. As with a
// real cron, the next pass repeats one that failed; audit rejects a run with many of them.
func (s *system) cron(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Minute):
		}
		for _, args := range [][]string{
			{"completer"}, {"reaper"}, {"worker", "--once"}, {"reconcile", "--since", "10m"}, {"keys", "list"}, {"migrate", "status"},
		} {
			_, err := s.command(ctx, args...)
			if ctx.Err() != nil {
				return
			}
			s.cronRuns++
			if err != nil {
				s.cronErrors = append(s.cronErrors, err)
			}
		}
	}
}

// startMail starts a mail server that counts what it accepts.
func (s *system) startMail(ctx context.Context) (address string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return mailSession{&s.mails}, nil }))
	server.Domain = "mail.example.com"
	server.ErrorLog = log.New(io.Discard, "", 0)
	go func() { _ = server.Serve(listener) }()
	s.closeMail = server.Close
	return listener.Addr().String(), nil
}

type mailSession struct{ mails *atomic.Int64 }

func (mailSession) Reset()                               {}
func (mailSession) Logout() error                        { return nil }
func (mailSession) Mail(string, *smtp.MailOptions) error { return nil }
func (mailSession) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (m mailSession) Data(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	m.mails.Add(1)
	return err
}

// collect takes a sample at each interval until ctx ends.
func (s *system) collect(ctx context.Context, every time.Duration) (samples []sample, err error) {
	for {
		one, err := s.sample(ctx)
		if ctx.Err() != nil {
			return samples, nil
		}
		if err != nil {
			return nil, err
		}
		samples = append(samples, one)
		select {
		case <-ctx.Done():
			return samples, nil
		case <-time.After(every):
		}
	}
}

// scrapeAll adds metrics of each service to figures: their names in the exposition, in ours, and the
// unit's size.
func (s *system) scrapeAll(ctx context.Context, figures map[string]float64, metrics map[string]string, unit float64) error {
	for i, service := range s.services {
		if service.Exited() {
			return service.Wait()
		}
		for metric, name := range metrics {
			value, err := scrape(ctx, s.admin[i], metric)
			if err != nil {
				return err
			}
			figures[service.Name+": "+name] = value / unit
		}
	}
	return nil
}

// counts returns what is open at rest.
func (s *system) counts(ctx context.Context) (map[string]float64, error) {
	figures := map[string]float64{}
	var sessions float64
	err := s.pool.QueryRow(ctx, `
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'orders-api'`).Scan(&sessions)
	figures["sessions"] = sessions
	return figures, errors.Join(err, s.scrapeAll(ctx, figures,
		map[string]string{"go_goroutines": "goroutines", "process_open_fds": "descriptors"}, 1))
}

func (s *system) sample(ctx context.Context) (sample, error) {
	one := sample{figures: map[string]float64{}}
	if err := s.scrapeAll(ctx, one.figures,
		map[string]string{"process_resident_memory_bytes": "memory MiB", "go_memstats_stack_inuse_bytes": "stacks MiB"}, 1<<20); err != nil {
		return one, err
	}
	var dead float64
	if err := s.pool.QueryRow(ctx, `
SELECT (SELECT sum(n_dead_tup) FROM pg_stat_user_tables),
       (SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'orders')`).Scan(&dead, &one.orders); err != nil {
		return one, err
	}
	one.figures["dead rows"] = dead
	// Rows of these tables are deleted as fast as they are inserted.
	for _, table := range []string{"idempotency_keys", "staged_jobs"} {
		var size float64
		if err := s.pool.QueryRow(ctx, "SELECT pg_total_relation_size($1::text::regclass)", table).Scan(&size); err != nil {
			return one, err
		}
		one.figures[table+": size MiB"] = size / (1 << 20)
	}
	now, records, images, err := s.WALSince(ctx, s.walPosition)
	if err != nil {
		return one, err
	}
	s.walPosition, s.records, s.images = now, s.records+records, s.images+images
	cpu, err := scrape(ctx, s.admin[0], "process_cpu_seconds_total")
	one.records, one.images, one.cpu = s.records, s.images, cpu*1000
	return one, err
}

// scrape returns the value of a metric without labels. It tries thrice, as the client does, because other
// programs use this machine, too.
func scrape(ctx context.Context, address, metric string) (value float64, err error) {
	for range 3 {
		if value, err = scrapeOnce(ctx, address, metric); err == nil || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Second)
	}
	return value, err
}

func scrapeOnce(ctx context.Context, address, metric string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return 0, err
	}
	if families[metric] == nil {
		return 0, fmt.Errorf("%s has no metric %s", address, metric)
	}
	one := families[metric].GetMetric()[0]
	return one.GetGauge().GetValue() + one.GetCounter().GetValue(), nil
}

func (s *system) close() error {
	var err error
	for _, p := range append(s.services, s.stripe) {
		err = errors.Join(err, p.Stop())
	}
	if s.pool != nil {
		s.pool.Close()
	}
	return errors.Join(err, s.closeMail(), s.PostgreSQL.Close())
}
