//go:build linux || darwin

package dbtest_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/migrations/dbtest"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main{M: m}) }

func databases(t *testing.T, pool *pgxpool.Pool, pattern string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT datname::text FROM pg_database WHERE datname LIKE $1", pattern)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return names
}

func currentDatabase(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	var name string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_database()").Scan(&name))
	return name
}

func countTables(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&n))
	return n
}

func TestNew_databasesAreSeparate(t *testing.T) {
	t.Parallel()
	one, two := dbtest.New(t), dbtest.New(t)
	_, err := one.Exec(t.Context(), "INSERT INTO accounts (id, name) VALUES (gen_random_uuid(), 'Ann')")
	require.NoError(t, err)
	var n int
	require.NoError(t, two.QueryRow(t.Context(), "SELECT count(*) FROM accounts").Scan(&n))
	require.Zero(t, n)
	require.NotEqual(t, currentDatabase(t, one), currentDatabase(t, two))
}

func TestNew_configuration(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 4, dbtest.New(t).Config().MaxConns)
	pool := dbtest.New(t, func(c *pgxpool.Config) { c.MaxConns = 9 })
	require.EqualValues(t, 9, pool.Config().MaxConns)
}

func TestNew_droppedAfterThePass(t *testing.T) {
	t.Parallel()
	watcher := dbtest.Empty(t)
	var name string
	require.True(t, t.Run("passes", func(t *testing.T) {
		name = currentDatabase(t, dbtest.New(t))
	}))
	require.Empty(t, databases(t, watcher, name))
}

func TestEmpty_hasNoSchema(t *testing.T) {
	t.Parallel()
	require.Zero(t, countTables(t, dbtest.Empty(t)))
	require.NotZero(t, countTables(t, dbtest.New(t)))
}

func TestURL(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	conn, err := pgx.Connect(t.Context(), dbtest.URL(pool))
	require.NoError(t, err)
	var name string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_database()").Scan(&name))
	require.Equal(t, currentDatabase(t, pool), name)
	require.NoError(t, conn.Close(t.Context()))
}

// role makes TestAsChild, which else does nothing, one of the tests that the
// tests below run in a process of their own.
const role = "DBTEST_TEST_ROLE"

func TestAsChild(t *testing.T) {
	switch os.Getenv(role) {
	case "passes":
		require.NotZero(t, countTables(t, dbtest.New(t)))
	case "fails":
		t.Log("url", dbtest.URL(dbtest.New(t)))
		t.Fail()
	case "hangs":
		fmt.Println("url", dbtest.URL(dbtest.New(t)))
		<-t.Context().Done() // never: the parent kills us
	}
}

func asChild(t *testing.T, name string, environment ...string) *exec.Cmd {
	t.Helper()
	executable, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), executable, "-test.run=^TestAsChild$", "-test.v")
	cmd.Env = append(os.Environ(), role+"="+name)
	cmd.Env = append(cmd.Env, environment...)
	return cmd
}

func requireGone(t *testing.T, url string) {
	t.Helper()
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(t.Context(), url)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err != nil
	}, patience, 10*time.Millisecond)
}

var urlPattern = regexp.MustCompile(`url (postgres://\S+)`)

func TestFailure_databaseEndsWithTheTestBinary(t *testing.T) {
	t.Parallel()
	out, err := asChild(t, "fails", "DATABASE_URL=", "DBTEST_KEEP=").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "unless DBTEST_KEEP=1 is set:")
	require.Regexp(t, `psql 'postgres://postgres@127\.0\.0\.1:\d+/t_\d+_\w+\?passfile=/[^']+'`, string(out))
	url := urlPattern.FindSubmatch(out)
	require.NotNil(t, url)
	requireGone(t, string(url[1]))
}

func TestFailure_databaseKept(t *testing.T) {
	t.Parallel()
	out, err := asChild(t, "fails", "DATABASE_URL=", "DBTEST_KEEP=1").CombinedOutput()
	require.Error(t, err)
	kill := regexp.MustCompile(`kill -QUIT (\d+)`).FindSubmatch(out)
	require.NotNil(t, kill, string(out))
	url := urlPattern.FindSubmatch(out)
	require.NotNil(t, url)
	conn, err := pgx.Connect(t.Context(), string(url[1]))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "TABLE accounts")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))

	pid, err := strconv.Atoi(string(kill[1]))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGQUIT))
	requireGone(t, string(url[1]))
}

func TestServer_endsWithAKilledTestBinary(t *testing.T) {
	t.Parallel()
	cmd := asChild(t, "hangs", "DATABASE_URL=")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var url []string
	for lines := bufio.NewScanner(stdout); url == nil && lines.Scan(); {
		url = urlPattern.FindStringSubmatch(lines.Text())
	}
	require.NotNil(t, url)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	requireGone(t, url[1])
}

func TestServer_noneToBeHadIsAFailure(t *testing.T) {
	t.Parallel()
	out, err := asChild(t, "passes", "DATABASE_URL=", "PG_BIN="+t.TempDir()).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "no database server")
	require.NotContains(t, string(out), "SKIP")
}

// Two test binaries at once, on a server that is not theirs.
func TestServer_givenAndShared(t *testing.T) {
	t.Parallel()
	server, err := embeddedpg.Start(t.Context(), embeddedpg.Options{
		BinDir: os.Getenv("PG_BIN"),
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	pool, err := pgxpool.New(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	defer pool.Close()

	children := []*exec.Cmd{
		asChild(t, "passes", "DATABASE_URL="+server.URL("postgres")),
		asChild(t, "passes", "DATABASE_URL="+server.URL("postgres")),
		asChild(t, "fails", "DATABASE_URL="+server.URL("postgres")),
	}
	var outputs [3]strings.Builder
	for i, child := range children {
		child.Stdout, child.Stderr = &outputs[i], &outputs[i]
		require.NoError(t, child.Start())
	}
	require.NoError(t, children[0].Wait(), outputs[0].String())
	require.NoError(t, children[1].Wait(), outputs[1].String())
	require.Error(t, children[2].Wait())

	require.Len(t, databases(t, pool, "tmpl_%"), 1)
	kept := databases(t, pool, `t\_%`)
	require.Len(t, kept, 1)
	require.Contains(t, outputs[2].String(), "the database is kept:")
	require.Contains(t, outputs[2].String(), kept[0])
	require.Zero(t, countTables(t, pool), "the database that is named stays as it is")
}
