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

// stopTimeout bounds the stop of a server: 20 ms, or for kept data as long as the disk
// takes.
const stopTimeout = time.Minute

const superuser = "postgres"

// Options configure [Start].
type Options struct {
	// BinDir is the folder of initdb and postgres, of version 15 or later. If it is
	// empty, [Start] searches for them.
	BinDir string

	// DataDir is the folder of data that is kept and durable. If it is empty, the data
	// is temporary, and settings trade durability for speed.
	DataDir string

	// Reset deletes the data in DataDir first.
	Reset bool

	// Settings are more server settings by name, which override the package's, except
	// for address and port.
	Settings map[string]string

	// Notice, if set, is called before a slow step: the download of a bundle. The
	// default is Logger.
	Notice func(line string)

	// Logger is required.
	Logger *slog.Logger
}

// Server is a running PostgreSQL server.
type Server struct {
	options  Options
	as       osUser
	found    installation
	data     *folder
	log      *os.File
	process  *process
	freePort func() (int, error)
	port     int
	pid      int
	stop     func() error
}

// Start starts a server and returns when it accepts connections, after about half a
// second. The context bounds only the start. Errors are ErrNotFound, ErrInUse, and
// others with the end of the server's log.
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
			err = errors.Join(err, s.process.stop(stopTimeout))
		}
		return nil, fmt.Errorf("embeddedpg: %w", errors.Join(err, s.release()))
	}
	return s, nil
}

func newServer(options Options) *Server {
	s := &Server{options: options, as: serverUser(), freePort: freePort}
	s.stop = sync.OnceValue(s.shutdown)
	return s
}

// URL returns the connection string for a database of the server. "postgres" always
// exists. The string names the passfile.
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

// escapePath escapes a path for the query of a URL. For libpq, unlike url.QueryEscape,
// "+" is no space.
func escapePath(path string) string {
	return strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(path))
}

// Dir returns the folder of the server's data and log.
func (s *Server) Dir() string { return s.data.path }

// BinDir returns the folder of the server's programs.
func (s *Server) BinDir() string { return s.found.bin }

// PID returns the id of the server's main process.
func (s *Server) PID() int { return s.pid }

// Exited returns a channel that is closed when the server has ended.
func (s *Server) Exited() <-chan struct{} { return s.process.exited }

// Stop stops the server and removes temporary data. It returns an error if the server
// had ended before. Further calls return the same result.
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

// release releases everything except the server.
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
