package dbtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders-api/internal/embeddedpg"
)

// startPatience leaves room for the download of a server, at first use.
const startPatience = 6 * time.Minute

// shared is the one server of this test binary. It is a package variable, which
// this module otherwise avoids, because tests of one binary have nothing else in
// common that could hold it.
var shared struct {
	once   sync.Once
	server *server
	err    error
}

// server is where test databases are created.
type server struct {
	private  *embeddedpg.Server // nil when DATABASE_URL names the server
	url      string             // of a database that is there from the start
	pooled   string             // URL of the server through a pooler, or empty
	admin    *pgxpool.Pool
	template func() (string, error) // the name of the template, made at first use
}

// sharedServer returns the server, started at first use.
func sharedServer(t testing.TB) *server {
	t.Helper()
	shared.once.Do(func() {
		// Not the test's context: the server is for all tests.
		ctx, cancel := context.WithTimeout(context.Background(), startPatience)
		defer cancel()
		shared.server, shared.err = startServer(ctx)
	})
	if shared.err != nil {
		t.Fatalf("dbtest: no database server: %v", shared.err)
	}
	return shared.server
}

func startServer(ctx context.Context) (*server, error) {
	s := &server{url: os.Getenv("DATABASE_URL"), pooled: os.Getenv("DBTEST_POOLER_URL")}
	if s.url == "" {
		var err error
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
	config, err := pgxpool.ParseConfig(s.url)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("DATABASE_URL: %w", err), s.stop())
	}
	config.MaxConns = poolSize // more creators at once are no faster
	if s.admin, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	s.template = sync.OnceValues(s.makeTemplate)
	return s, nil
}

// config returns the configuration of a pool on one of the server's databases.
func (s *server) config(database string) (*pgxpool.Config, error) {
	if s.pooled != "" {
		return poolConfig(s.pooled, database)
	}
	return s.direct(database)
}

// direct is like config, without a pooler.
func (s *server) direct(database string) (*pgxpool.Config, error) {
	return poolConfig(s.url, database)
}

func poolConfig(server, database string) (*pgxpool.Config, error) {
	dsn, err := withDatabase(server, database)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	return config, nil
}

// withDatabase returns the connection string, in either of its two forms, with
// another database.
func withDatabase(dsn, database string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return dsn + " dbname=" + database, nil // of two the last one counts
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("DATABASE_URL is not a valid URL") // the cause would quote the password
	}
	u.Path = "/" + database
	return u.String(), nil
}

// keep says how to look at a database that is not dropped.
func (s *server) keep(database string) string {
	if s.private == nil {
		c := s.admin.Config().ConnConfig
		return fmt.Sprintf("dbtest: the database is kept:\npsql -h %s -p %d -U %s %s", c.Host, c.Port, c.User, database)
	}
	psql := "psql '" + s.private.URL(database) + "'"
	if os.Getenv("DBTEST_KEEP") != "1" {
		return "dbtest: the database ends with this test binary, unless DBTEST_KEEP=1 is set:\n" + psql
	}
	if err := s.private.Detach(); err != nil {
		return fmt.Sprintf("dbtest: the database cannot be kept: %v", err)
	}
	return fmt.Sprintf("dbtest: the database is kept:\n%s\n\"kill -QUIT %d\" ends its server and removes the data", psql, s.private.PID())
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

// Main stops the server in order after a package's tests. Packages do not need
// it, since the server ends with the test binary in any case; it is for those
// that look for leaked goroutines:
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
