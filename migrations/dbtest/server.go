package dbtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/embeddedpg"
)

const startTimeout = 6 * time.Minute // with the download of a server

var shared struct {
	once   sync.Once
	server *server
	err    error
}

type server struct {
	private  *embeddedpg.Server // nil when a variable names the server
	url      string
	pooled   string // through a pooler, or empty
	admin    *pgxpool.Pool
	template func() (string, error) // creates the template at first use
}

func sharedServer(t testing.TB) *server {
	t.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout) // the server outlives the test
		defer cancel()
		shared.server, shared.err = startServer(ctx)
	})
	if shared.err != nil {
		t.Fatalf("dbtest: no database server: %v", shared.err)
	}
	return shared.server
}

func startServer(ctx context.Context) (s *server, err error) {
	s = &server{url: os.Getenv("DATABASE_URL"), pooled: os.Getenv("DBTEST_POOLER_URL")}
	if s.url == "" {
		// Not os.Getenv: go test records its use, and would reuse no cached result if the address changes.
		s.url, _ = syscall.Getenv("DBTEST_SERVER")
	}
	if s.url == "" {
		s.private, err = embeddedpg.Start(ctx, embeddedpg.Options{
			BinDir: os.Getenv("PG_BIN"),
			Notice: func(line string) { fmt.Fprintln(os.Stderr, line) },
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, err
		}
		s.url = s.private.URL("postgres")
	}
	if s.admin, err = connectAdmin(ctx, s.url); err != nil {
		return nil, errors.Join(fmt.Errorf("DATABASE_URL: %w", err), s.stop())
	}
	s.template = sync.OnceValues(s.makeTemplate)
	return s, nil
}

// connectAdmin connects without timeouts, because copies of a database wait for each other.
func connectAdmin(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	config.ConnConfig.RuntimeParams["lock_timeout"] = "0"
	config.ConnConfig.RuntimeParams["statement_timeout"] = "0"
	return pgxpool.NewWithConfig(ctx, config)
}

func connect(ctx context.Context, server, database string, configure ...func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	dsn, err := withDatabase(server, database)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	for _, change := range configure {
		change(config)
	}
	return pgxpool.NewWithConfig(ctx, config)
}

func withDatabase(server, database string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", errors.New("DATABASE_URL is not a valid URL") // the cause would quote the password
	}
	u.Path = "/" + database
	return u.String(), nil
}

func (s *server) stop() error {
	if s.admin != nil {
		s.admin.Close()
	}
	if s.private != nil {
		return s.private.Stop()
	}
	return nil
}

// Main stops the server, for packages that check for leaked goroutines:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }
type Main struct{ *testing.M }

// Run runs the tests, stops the server and returns the exit code.
func (m Main) Run() int {
	code := m.M.Run()
	shared.once.Do(func() { shared.err = errors.New("the tests are over") })
	if shared.server == nil {
		return code
	}
	if err := shared.server.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest:", err)
		return max(code, 1)
	}
	return code
}
