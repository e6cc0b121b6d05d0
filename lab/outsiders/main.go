//go:build unix

// Command outsiders attacks an API process with many connections that have no valid API
// key, and measures whether it still serves all other clients (R25): `make -C lab outsiders`.
//
// A process of its own holds the connections, and reconnects each one as soon as the
// server closes it. Meanwhile new connections send GET /healthz, and requests with valid
// API keys that the server has not seen before. The program fails if one of these takes
// longer than a second, or if the server uses 128 MiB or more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/procfs"

	"example.com/orders-api/internal/accounts"
	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/internal/subprocess"
)

const (
	maxLatency = time.Second
	maxMemory  = 128 << 20
)

type options struct {
	connections int
	duration    time.Duration
	mode        string
	address     string // set in the attacking process
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "outsiders:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var o options
	flags := flag.NewFlagSet("outsiders", flag.ContinueOnError)
	flags.IntVar(&o.connections, "connections", 4100, "number of connections; the server allows 4,000")
	flags.DurationVar(&o.duration, "duration", time.Minute, "duration of the attack")
	flags.StringVar(&o.mode, "mode", "pipeline", "what each connection does: "+strings.Join(modes(), ", "))
	flags.StringVar(&o.address, "attack", "", "only attack the server at this address, until the process is stopped")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if attacks[o.mode] == nil || o.connections < 1 || o.duration < time.Second || flags.NArg() > 0 {
		flags.Usage()
		return errors.New("invalid arguments")
	}
	if o.address != "" {
		attack(ctx, o)
		return nil
	}
	s := &system{out: out}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.start(ctx, o); err != nil {
		return err
	}
	return s.measure(ctx, o)
}

type system struct {
	out      io.Writer
	folder   string // logs and PostgreSQL's data
	program  string // this one
	postgres *embeddedpg.Server
	pool     *pgxpool.Pool
	account  uuid.UUID
	apiKeys  []string // valid, used once each
	api      *subprocess.Process
	address  string
	attacker *subprocess.Process
}

func (s *system) start(ctx context.Context, o options) error {
	var err error
	if s.program, err = os.Executable(); err != nil {
		return err
	}
	cache, err := embeddedpg.CacheDir()
	if err != nil {
		return err
	}
	if s.folder, err = os.MkdirTemp(cache, "outsiders-"); err != nil {
		return err
	}
	if err := os.Chmod(s.folder, 0o755); err != nil { //nolint:gosec // the server's OS user needs access
		return err
	}
	s.postgres, err = embeddedpg.Start(ctx, embeddedpg.Options{
		BinDir:  os.Getenv("PG_BIN"),
		DataDir: filepath.Join(s.folder, "postgres"),
		Logger:  slog.New(slog.DiscardHandler),
		Notice:  func(line string) { fmt.Fprintln(s.out, line) },
	})
	if err != nil {
		return err
	}
	s.api = &subprocess.Process{
		Name:       "orders",
		Executable: filepath.Join(filepath.Dir(s.program), "orders"),
		Args:       []string{"serve", "--shutdown-delay", "0"},
		Log:        filepath.Join(s.folder, "orders.log"),
	}
	if s.address, err = subprocess.FreeAddress(ctx); err != nil {
		return err
	}
	s.api.Environ = []string{
		"DATABASE_URL=" + s.postgres.URL("postgres"),
		"LISTEN_ADDR=" + s.address,
		"ADMIN_ADDR=",
		"STRIPE_SECRET_KEY=sk_test_unused",
		"STRIPE_API_BASE=http://127.0.0.1:1",
	}
	migrate := exec.CommandContext(ctx, s.api.Executable, "migrate", "up") //nolint:gosec // our own program
	migrate.Env, migrate.Stderr = s.api.Environ, os.Stderr
	if err := migrate.Run(); err != nil {
		return fmt.Errorf("orders migrate up: %w", err)
	}
	if err := s.createKeys(ctx, int(o.duration/interval)+1); err != nil {
		return err
	}
	return s.api.Serve(ctx, "http://"+s.address+"/readyz")
}

func (s *system) createKeys(ctx context.Context, n int) error {
	var err error
	if s.pool, err = pgxpool.New(ctx, s.postgres.URL("postgres")); err != nil {
		return err
	}
	if s.account, _, err = accounts.Create(ctx, s.pool, "honest"); err != nil {
		return err
	}
	for range n {
		_, apiKey, err := accounts.CreateKey(ctx, s.pool, s.account)
		if err != nil {
			return err
		}
		s.apiKeys = append(s.apiKeys, apiKey)
	}
	return nil
}

func (s *system) measure(ctx context.Context, o options) error {
	s.attacker = &subprocess.Process{
		Name:       "attack",
		Executable: s.program,
		Args:       []string{"-attack", s.address, "-mode", o.mode, "-connections", strconv.Itoa(o.connections)},
		Log:        filepath.Join(s.folder, "attack.log"),
	}
	if err := s.attacker.Start(); err != nil {
		return err
	}
	results := probeAll(ctx, s.address, s.apiKeys, o.duration)
	memory, apiCPU, err := usage(s.api)
	if err != nil {
		return err
	}
	_, attackCPU, err := usage(s.attacker)
	if err != nil {
		return err
	}
	if s.api.Exited() || s.attacker.Exited() {
		return errors.New("the server or the attack ended")
	}
	if err := s.attacker.Stop(); err != nil {
		return err
	}
	report, err := os.ReadFile(s.attacker.Log)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%s, %d connections, %s: %s", o.mode, o.connections, o.duration, report)
	failed := memory >= maxMemory
	for _, r := range results {
		fmt.Fprintln(s.out, r)
		failed = failed || r.failed()
	}
	fmt.Fprintf(s.out, "peak resident memory of the API: %d MiB; CPU: API %.1f s, attack %.1f s\n", memory>>20, apiCPU, attackCPU)
	if failed {
		return fmt.Errorf("outsiders denied service: the limits are %s and %d MiB", maxLatency, maxMemory>>20)
	}
	return nil
}

// usage returns the peak resident bytes and the CPU seconds of a process, or zeros without
// /proc.
func usage(process *subprocess.Process) (memory uint64, cpu float64, err error) {
	p, err := procfs.NewProc(process.PID())
	if err != nil {
		return 0, 0, nil //nolint:nilerr // not Linux
	}
	status, err := p.NewStatus()
	if err != nil {
		return 0, 0, err
	}
	stat, err := p.Stat()
	return status.VmHWM, stat.CPUTime(), err
}

func (s *system) close() error {
	var err error
	if s.attacker != nil {
		err = s.attacker.Stop()
	}
	if s.api != nil {
		err = errors.Join(err, s.api.Stop())
	}
	if s.pool != nil {
		s.pool.Close()
	}
	if s.postgres != nil {
		err = errors.Join(err, s.postgres.Stop())
	}
	if s.folder != "" {
		err = errors.Join(err, os.RemoveAll(s.folder))
	}
	return err
}
