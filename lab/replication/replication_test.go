//go:build replication

package replication_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/orders-api/internal/embeddedpg"
	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
)

func TestMain(m *testing.M) { os.Exit(labtest.Main{M: m}.Run()) }

// pair is a primary, its standby, and a fixture whose environment names both.
type pair struct {
	*labtest.Fixture

	t                *testing.T
	primary, standby *embeddedpg.Server
	onPrimary        *pgxpool.Pool
	onStandby        *pgxpool.Pool
}

func newPair(t *testing.T) *pair {
	t.Helper()
	// Below /var/tmp, which the server's user can access if the test runs as root.
	folder, err := os.MkdirTemp("/var/tmp", "orders-replication-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	require.NoError(t, os.Chmod(folder, 0o755))

	p := &pair{t: t}
	p.primary, p.onPrimary = p.startServer(filepath.Join(folder, "primary"))
	p.copyPrimary(filepath.Join(folder, "standby"))
	p.standby, p.onStandby = p.startServer(filepath.Join(folder, "standby"))
	p.until(p.onPrimary, "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'")

	p.Fixture = labtest.NewFixtureOn(t, p.onPrimary, p.url(), "STEP_TIMEOUT=1s", "LEASE_DURATION=2s", "COMPLETER_GRACE=3s")
	labtest.Run(t, p.Environ, "migrate", "up")
	p.CreateAccount()
	return p
}

func (p *pair) startServer(folder string) (*embeddedpg.Server, *pgxpool.Pool) {
	p.t.Helper()
	server, err := embeddedpg.Start(p.t.Context(), embeddedpg.Options{
		BinDir: programtest.ServerPrograms(p.t), DataDir: folder, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = server.Stop() }) // the primary has exited already
	pool, err := pgxpool.New(p.t.Context(), server.URL("postgres"))
	require.NoError(p.t, err)
	p.t.Cleanup(pool.Close)
	return server, pool
}

// copyPrimary creates a standby's data folder with the owner that embeddedpg expects.
func (p *pair) copyPrimary(folder string) {
	p.t.Helper()
	data := filepath.Join(folder, "data")
	require.NoError(p.t, os.MkdirAll(data, 0o700))
	basebackup := exec.CommandContext(p.t.Context(), "pg_basebackup", "-d", p.primary.URL("postgres"), "-D", data, "-R", "-X", "stream", "-c", "fast")
	// The standby's user may be unable to read the passfile, so its configuration gets
	// the password itself.
	basebackup.Env = []string{
		"PATH=" + p.primary.BinDir() + ":" + os.Getenv("PATH"), "LC_ALL=C",
		"PGPASSWORD=" + p.onPrimary.Config().ConnConfig.Password,
	}
	basebackup.Path = filepath.Join(p.primary.BinDir(), "pg_basebackup")
	printed, err := basebackup.CombinedOutput()
	require.NoError(p.t, err, "%s", printed)
	const passfile = "pgpass"
	require.NoError(p.t, os.Link(filepath.Join(p.primary.Dir(), passfile), filepath.Join(folder, passfile)))
	info, err := os.Stat(filepath.Join(p.primary.Dir(), "data"))
	require.NoError(p.t, err)
	owner := info.Sys().(*syscall.Stat_t)
	require.NoError(p.t, filepath.WalkDir(data, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(owner.Uid), int(owner.Gid))
	}))
}

// url returns a connection string of both servers that selects the writable one.
func (p *pair) url() string {
	p.t.Helper()
	first, err := url.Parse(p.primary.URL("postgres"))
	require.NoError(p.t, err)
	second, err := url.Parse(p.standby.URL("postgres"))
	require.NoError(p.t, err)
	first.Host += "," + second.Host
	return first.String() + "&target_session_attrs=read-write"
}

func (p *pair) until(pool *pgxpool.Pool, query string) {
	p.t.Helper()
	programtest.Eventually(p.t, func() (result bool) {
		require.NoError(p.t, pool.QueryRow(p.t.Context(), query).Scan(&result))
		return result
	})
}

func configure(t *testing.T, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, statement := range append(statements, "SELECT pg_reload_conf()") {
		_, err := pool.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
}

func (p *pair) failOver() {
	p.t.Helper()
	require.NoError(p.t, syscall.Kill(p.primary.PID(), syscall.SIGQUIT)) // immediate shutdown
	<-p.primary.Exited()
	_, err := p.onStandby.Exec(p.t.Context(), "SELECT pg_promote()")
	require.NoError(p.t, err)
	p.until(p.onStandby, "SELECT NOT pg_is_in_recovery()")
}

// requireConsistent checks that payments, orders and responses agree.
func (p *pair) requireConsistent(responses map[string]programtest.Response) {
	p.t.Helper()
	paid := map[string]bool{}
	for _, response := range responses {
		id := paidOrder(p.t, response).ID
		require.Len(p.t, p.Stripe.ChargesByOrder(id), 1)
		paid[id] = true
	}
	require.Len(p.t, paid, len(responses))
	require.Len(p.t, p.Stripe.Charges(), len(responses))
	require.Equal(p.t, map[string]int64{"usd": int64(len(responses)) * 2500}, p.Stripe.MoneyMoved())
	rows, err := p.onStandby.Query(p.t.Context(), "SELECT id::text FROM orders WHERE status = 'paid'")
	require.NoError(p.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(p.t, err)
	require.Len(p.t, ids, len(responses))
	for _, id := range ids {
		require.True(p.t, paid[id])
	}
	// What a retry has just restored stays open until it is older than COMPLETER_GRACE.
	code, report := p.reconcile(fmt.Sprintf("Compared %d intents ", len(responses)), "Discrepancies: 0,")
	require.Zero(p.t, code, report)
}

// reconcile repeats orders reconcile, which ignores activity within COMPLETER_GRACE, until
// its output contains all texts.
func (p *pair) reconcile(texts ...string) (code int, report string) {
	p.t.Helper()
	programtest.Eventually(p.t, func() bool {
		command := labtest.Start(p.t, p.Environ, "reconcile", "--since", "1h")
		code = command.Wait()
		report = command.Stdout.String()
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(report, text) })
	})
	return code, report
}

// Clients create orders while the primary is killed. With a synchronous standby no
// acknowledged order is lost.
func TestReplication_synchronous(t *testing.T) {
	p := newPair(t)
	configure(t, p.onPrimary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	p.until(p.onPrimary, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
	a := p.Serve(p.Environ, "--shutdown-delay", "0")

	const clients, each, before = 8, 40, 100
	var acknowledged atomic.Int64
	enough := make(chan struct{})
	var mu sync.Mutex
	responses := map[string]programtest.Response{}
	var group errgroup.Group
	for client := range clients {
		group.Go(func() error {
			for n := range each {
				key := fmt.Sprintf("replicated-order-%d-%03d", client, n)
				got, err := labtest.UntilPaid(context.Background(), a, key)
				if err != nil {
					return err
				}
				mu.Lock()
				responses[key] = got
				mu.Unlock()
				if acknowledged.Add(1) == before {
					close(enough)
				}
			}
			return nil
		})
	}
	<-enough
	p.failOver()
	require.NoError(t, group.Wait())
	require.Len(t, responses, clients*each)
	p.requireConsistent(responses)

	for key, first := range responses {
		again, err := a.Order(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, first.Status, again.Status)
		require.Equal(t, first.Body, again.Body, "the response is the same after the failover")
		require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
	}
	require.Len(t, p.Stripe.Charges(), len(responses))
	t.Logf("%d acknowledged orders, none lost", len(responses))
	a.Stop()
}

// With an asynchronous standby the newest rows can be lost. A retry within a day does not
// charge twice (R5), and reconcile finds the charges without an order.
func TestReplication_asynchronous(t *testing.T) {
	p := newPair(t)
	a := p.Serve(p.Environ, "--shutdown-delay", "0")
	responses := map[string]programtest.Response{}
	create := func(key string) {
		got, err := labtest.UntilPaid(t.Context(), a, key)
		require.NoError(t, err)
		responses[key] = got
	}
	create("an-order-that-is-kept")
	p.until(p.onPrimary, "SELECT pg_current_wal_lsn() <= replay_lsn FROM pg_stat_replication")
	configure(t, p.onStandby, "ALTER SYSTEM SET primary_conninfo = ''")
	p.until(p.onPrimary, "SELECT count(*) = 0 FROM pg_stat_replication")
	lost := []string{"a-lost-order-of-ours-1", "a-lost-order-of-ours-2", "a-lost-order-of-ours-3"}
	for _, key := range lost {
		create(key)
	}
	p.failOver()
	require.Equal(t, 1, p.rows("SELECT count(*) FROM orders"), "three acknowledged orders are gone")

	code, report := p.reconcile("Discrepancies: 3")
	require.Equal(t, 1, code)
	for _, key := range lost {
		require.Contains(t, report, paidOrder(t, responses[key]).ID, "a charge without its order")
	}

	for _, key := range lost {
		again, err := labtest.UntilPaid(t.Context(), a, key)
		require.NoError(t, err)
		require.Equal(t, paidOrder(t, responses[key]), paidOrder(t, again), "the same order and payment")
	}
	require.Equal(t, 4, p.rows("SELECT count(*) FROM orders WHERE status = 'paid'"))
	p.requireConsistent(responses)
	t.Logf("%d of %d acknowledged orders were lost; %d charges after their retries", len(lost), len(responses), len(p.Stripe.Charges()))
	a.Stop()
}

func (p *pair) rows(query string) (n int) {
	p.t.Helper()
	require.NoError(p.t, p.onStandby.QueryRow(p.t.Context(), query).Scan(&n))
	return n
}

type order struct {
	ID              string
	Status          string
	PaymentIntentID string `json:"payment_intent_id"`
}

func paidOrder(t *testing.T, response programtest.Response) (o order) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(response.Body), &o))
	require.Equal(t, "paid", o.Status)
	return o
}
