package embeddedpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// stopPatience bounds the wait for a server that was told to stop. Throw-away
// data needs some 20 ms; kept data is first written to disk, which may be busy.
const stopPatience = time.Minute

// superuser is the role of [Server.URL].
const superuser = "postgres"

// Options say which server to start.
type Options struct {
	// BinDir is the folder with the programs initdb and postgres, of version 15
	// or later. If it is empty they are searched for; if it is not, nothing else
	// will do.
	BinDir string

	// DataDir is a folder, of the server's own, whose data is kept and stays
	// durable. If it is empty the data is thrown away and settings trade
	// durability for speed. See CacheDir for a suitable parent.
	DataDir string

	// Reset deletes the data in DataDir first.
	Reset bool

	// Settings are further server settings, by name. They take precedence over
	// ours and over postgresql.conf. Address and port are not theirs to change.
	Settings map[string]string

	// Notice is told in one line what is slow (the download of a bundle), before
	// it starts. If it is nil, Logger is.
	Notice func(line string)

	// Logger is needed.
	Logger *slog.Logger
}

// Server is a running PostgreSQL server.
type Server struct {
	options  Options
	as       account
	found    installation
	data     *folder
	log      *os.File
	process  *process
	freePort func() (int, error)
	port     int
	pid      int
	stop     func() error
}

// Start starts a server and returns when it accepts connections, after about
// half a second: most of it goes into making a new data folder. The context
// bounds the start, not the server's life.
//
// The error wraps ErrNotFound, ErrInUse or ErrVersion where one of these is the
// reason, and quotes the server's log where that has it.
func Start(ctx context.Context, options Options) (*Server, error) {
	if !supported {
		return nil, fmt.Errorf("embeddedpg: a private PostgreSQL needs Linux or macOS: set DATABASE_URL instead: %w", errors.ErrUnsupported)
	}
	if options.Logger == nil {
		return nil, errors.New("embeddedpg: Options.Logger is missing")
	}
	if options.Notice == nil {
		options.Notice = func(line string) { options.Logger.InfoContext(ctx, line) }
	}
	s := newServer(options)
	if err := s.start(ctx); err != nil {
		if s.process != nil {
			err = errors.Join(err, s.process.stop(stopPatience))
		}
		return nil, fmt.Errorf("embeddedpg: %w", errors.Join(err, s.release()))
	}
	return s, nil
}

func newServer(options Options) *Server {
	s := &Server{options: options, as: serverAccount(), freePort: freePort}
	s.stop = sync.OnceValue(s.shutdown)
	return s
}

// URL returns the connection string for one of the server's databases, of which
// "postgres" is there from the start. It names a file that has the password.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(superuser),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/" + database,
		RawQuery: "passfile=" + escapePath(s.passfile()) + "&sslmode=disable",
	}
	return u.String()
}

// escapePath escapes a path for the query of a URL. Unlike url.QueryEscape, it keeps
// slashes and has no "+" for a space, which libpq would take literally.
func escapePath(path string) string {
	return strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(path))
}

// Dir returns the folder that holds the server's data and its log, server.log.
func (s *Server) Dir() string { return s.data.path }

// BinDir returns the folder of the server's programs.
func (s *Server) BinDir() string { return s.found.bin }

// PID returns the id of the server's main process.
func (s *Server) PID() int { return s.pid }

// Exited returns a channel that is closed when the server has ended, by Stop or
// by itself.
func (s *Server) Exited() <-chan struct{} { return s.process.exited }

// Stop stops the server and removes throw-away data. It returns an error when the
// server had ended by itself before. Further calls return what the first one did.
func (s *Server) Stop() error { return s.stop() }

func (s *Server) shutdown() error {
	select {
	case <-s.process.exited:
		return fmt.Errorf("embeddedpg: before it was stopped: %w", errors.Join(s.exitError(), s.release()))
	default:
	}
	if err := errors.Join(s.process.stop(stopPatience), s.release()); err != nil {
		return fmt.Errorf("embeddedpg: stop: %w", err)
	}
	return nil
}

// release gives up whatever was taken, the server aside.
func (s *Server) release() error {
	var err error
	if s.log != nil {
		err = s.log.Close()
	}
	if s.data != nil {
		err = errors.Join(err, s.data.release())
	}
	return err
}

func (s *Server) start(ctx context.Context) error {
	begin := time.Now()
	cache, err := cacheDir(s.as)
	if err != nil {
		return fmt.Errorf("cache folder: %w", err)
	}
	if s.found, err = newFinder(s.options.BinDir, cache, s.options.Notice).find(ctx); err != nil {
		return err
	}
	if err := s.openData(ctx, cache); err != nil {
		return err
	}
	if !s.as.canReach(s.found.postgres()) || !s.as.canReach(s.found.initdb()) {
		return fmt.Errorf("%s: the server runs as user %d, which cannot run these programs: set PG_BIN to others, or run as another user than root", s.found.bin, s.as.uid)
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
		"dir", s.Dir(),
		"took", time.Since(begin).Round(time.Millisecond),
	)
	return nil
}
