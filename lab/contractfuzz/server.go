package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// server is "playground run" with a private PostgreSQL and a fake Stripe, in a
// temporary folder.
type server struct {
	program, folder         string
	process                 *os.Process
	ended                   chan struct{} // closed when the process has exited
	url, apiKey             string
	databaseURL, stripePage string
}

const webhookSecret = "whsec_contractfuzz"

// grace is the time after an order's last change during which reconcile ignores it.
const grace = 3 * time.Second

func startServer(ctx context.Context, program string) (*server, error) {
	parent := os.TempDir()
	if memory := "/dev/shm"; isFolder(memory) {
		parent = memory // the database of playground run is durable, which is slow on a disk
	}
	folder, err := os.MkdirTemp(parent, "contractfuzz")
	if err != nil {
		return nil, err
	}
	s := &server{program: program, folder: folder}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (s *server) start(ctx context.Context) error {
	cache := filepath.Join(s.folder, "cache")
	if err := errors.Join(os.Chmod(s.folder, 0o755), os.Mkdir(cache, 0o755)); err != nil { // PostgreSQL does not run as root
		return err
	}
	log, err := os.Create(filepath.Join(s.folder, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(filepath.Join(filepath.Dir(s.program), "playground"), "run", "--provider-latency=0s") //nolint:noctx // stop ends it, and it stops its database
	command.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache, "LISTEN_ADDR=127.0.0.1:0", "ADMIN_ADDR=", "LOG_LEVEL=warn",
		"DATABASE_URL=", "SMTP_URL=", "STRIPE_SECRET_KEY=", "STRIPE_API_BASE=", "STRIPE_WEBHOOK_SECRET="+webhookSecret)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return err
	}
	s.process, s.ended = command.Process, make(chan struct{})
	go func() {
		_ = command.Wait()
		close(s.ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for ; ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			return err
		}
		if s.apiKey = line(text, `API key +(\S+)\n`); s.apiKey != "" {
			s.url, s.databaseURL = line(text, `Orders API +(\S+)`), line(text, `PostgreSQL +psql '(\S+)'`)
			s.stripePage = line(text, `its charges: (\S+)`)
			return nil
		}
		select {
		case <-s.ended:
			cancel()
		default:
		}
	}
	text, _ := os.ReadFile(log.Name())
	return fmt.Errorf("playground run did not start:\n%s", text)
}

func line(text []byte, pattern string) string {
	if found := regexp.MustCompile(pattern).FindSubmatch(text); found != nil {
		return string(found[1])
	}
	return ""
}

// reconcile requires a comparison of at least this many orders. It returns the report.
func (s *server) reconcile(ctx context.Context, least int) (string, error) {
	pause(ctx, grace)
	command := exec.CommandContext(ctx, s.program, "reconcile", "--since=1h")
	command.Env = append(os.Environ(), "DATABASE_URL="+s.databaseURL, "STRIPE_API_BASE="+s.stripePage, "STRIPE_SECRET_KEY="+fakeKey,
		"STEP_TIMEOUT=1s", "LEASE_DURATION=2s", "COMPLETER_GRACE="+grace.String(), "LOG_LEVEL=warn")
	report, err := command.CombinedOutput()
	if compared, _ := strconv.Atoi(line(report, `Compared (\d+) intents`)); err == nil && compared < least {
		err = fmt.Errorf("reconcile compared fewer than %d intents", least)
	}
	return string(report), err
}

func (s *server) stop() error {
	if s.process != nil {
		_ = s.process.Signal(os.Interrupt)
		select {
		case <-s.ended:
		case <-time.After(time.Minute):
			_ = s.process.Kill()
			<-s.ended
		}
	}
	return os.RemoveAll(s.folder)
}

func pause(ctx context.Context, duration time.Duration) {
	select {
	case <-time.After(duration):
	case <-ctx.Done():
	}
}
