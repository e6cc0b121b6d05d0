package embeddedpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	startTimeout = time.Minute // a start takes 30 ms, but longer after a crash
	stopTimeout  = time.Minute // a stop takes 20 ms, but longer if the server must write data that is kept
	portAttempts = 5
	superuser    = "postgres"
)

// Options configure [Start].
type Options struct {
	BinDir   string            // folder of initdb and postgres, version 15 or later; "" searches for one
	DataDir  string            // folder of data that is kept and durable; "" is for temporary data
	Reset    bool              // deletes the data in DataDir first
	Settings map[string]string // settings of the server, which override this package's
	Notice   func(line string) // is called before a download; the default logs it
	Logger   *slog.Logger      // required
}

// Server is a running PostgreSQL server.
type Server struct {
	options  Options
	found    installation
	dir      string
	lock     *os.File // of the folder
	process  *process
	freePort func() (int, error)
	port     int
	pid      int
	stop     func() error
}

// Start starts a server and returns when it accepts connections. The error is [ErrInUse], or
// has the end of the server's log.
func Start(ctx context.Context, options Options) (*Server, error) {
	if options.Notice == nil {
		options.Notice = func(line string) { options.Logger.InfoContext(ctx, line) }
	}
	s := newServer(options)
	if err := s.start(ctx); err != nil {
		if s.process != nil {
			err = errors.Join(err, s.process.stop(stopTimeout))
		}
		return nil, fmt.Errorf("embeddedpg: %w", errors.Join(err, s.release()))
	}
	return s, nil
}

func newServer(options Options) *Server {
	s := &Server{options: options, freePort: freePort}
	s.stop = sync.OnceValue(s.shutdown)
	return s
}

// URL returns the connection string for a database of the server, such as "postgres".
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(superuser),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/" + database,
		RawQuery: "passfile=" + escapePath(filepath.Join(s.dir, passfileName)) + "&sslmode=disable",
	}
	return u.String()
}

// escapePath escapes a path for the query of a URL. For libpq, "+" is no space.
func escapePath(path string) string {
	return strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(path))
}

// Dir returns the folder of the server's data and log.
func (s *Server) Dir() string { return s.dir }

// BinDir returns the folder of the server's programs.
func (s *Server) BinDir() string { return s.found.bin }

// PID returns the id of the server's main process.
func (s *Server) PID() int { return s.pid }

// Exited is closed when the server has ended.
func (s *Server) Exited() <-chan struct{} { return s.process.exited }

// Stop stops the server and removes temporary data. The error reports an earlier end.
func (s *Server) Stop() error { return s.stop() }

func (s *Server) shutdown() error {
	select {
	case <-s.process.exited:
		return fmt.Errorf("embeddedpg: before it was stopped: %w", errors.Join(s.exitError(), s.release()))
	default:
	}
	if err := errors.Join(s.process.stop(stopTimeout), s.release()); err != nil {
		return fmt.Errorf("embeddedpg: stop: %w", err)
	}
	return nil
}

func (s *Server) start(ctx context.Context) error {
	begin := time.Now()
	cache, err := CacheDir()
	if err != nil {
		return fmt.Errorf("cache folder: %w", err)
	}
	if s.options.BinDir == "" {
		s.found, err = finder{exec.LookPath, packageFolders, cache, s.options.Notice}.find(ctx)
	} else if s.found, err = inspect(ctx, s.options.BinDir); err != nil {
		err = fmt.Errorf("the given folder of PostgreSQL's programs (PG_BIN): %w", err)
	}
	if err != nil {
		return err
	}
	if err := s.openData(ctx, cache); err != nil {
		return err
	}
	if err := s.initialise(ctx); err != nil {
		return err
	}
	if err := s.launch(ctx); err != nil {
		return err
	}
	s.options.Logger.InfoContext(ctx, "private PostgreSQL is ready",
		"version", s.found.major,
		"url", s.URL("postgres"),
		"dir", s.dir,
		"duration_seconds", time.Since(begin).Seconds(),
	)
	return nil
}

// launch starts the server at a free port, and at another one if a process took that first.
func (s *Server) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout,
		fmt.Errorf("the server was not ready within %s", startTimeout))
	defer cancel()
	for attempt := 1; ; attempt++ {
		var err error
		if s.port, err = s.freePort(); err != nil {
			return err
		}
		stale, _ := os.ReadFile(s.statusFile()) // a crash leaves it
		if s.process, err = s.startProcess(ctx, s.commandLine()); err != nil {
			return err
		}
		err = s.waitReady(ctx, stale)
		if err == nil || attempt == portAttempts || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
	}
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func (s *Server) commandLine() []string {
	settings := map[string]string{
		"max_connections":         "300",
		"unix_socket_directories": "", // the path of a socket may be too long
	}
	if !s.kept() {
		maps.Copy(settings, map[string]string{
			"fsync":              "off",
			"synchronous_commit": "off",
			"full_page_writes":   "off",
			"max_wal_size":       "256MB", // the data may be in memory
		})
	}
	maps.Copy(settings, s.options.Settings)
	settings["listen_addresses"] = "127.0.0.1"
	settings["port"] = strconv.Itoa(s.port)

	line := []string{s.found.postgres(), "-D", s.dataDir()}
	for name, value := range settings {
		line = append(line, "-c", name+"="+value)
	}
	return line
}

func (s *Server) statusFile() string { return filepath.Join(s.dataDir(), "postmaster.pid") }
func (s *Server) logFile() string    { return filepath.Join(s.dir, "server.log") }

// waitReady reads the server's status file: the first line is the process id, the eighth the
// state.
func (s *Server) waitReady(ctx context.Context, stale []byte) error {
	for {
		status, _ := os.ReadFile(s.statusFile())
		if lines := strings.Split(string(status), "\n"); len(lines) > 8 && !bytes.Equal(status, stale) {
			if state := strings.TrimSpace(lines[7]); state == "ready" || state == "standby" {
				var err error
				s.pid, err = strconv.Atoi(lines[0])
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w\n%s", context.Cause(ctx), s.lastLog())
		case <-s.process.exited:
			return s.exitError()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *Server) exitError() error {
	return fmt.Errorf("the server ended by itself (%s):\n%s", s.process.status, s.lastLog())
}

func (s *Server) lastLog() string {
	log, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return lastLines(log, 15)
}

func lastLines(text []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
