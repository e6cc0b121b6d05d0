//go:build citus

package citus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/lab/labtest"
)

func TestMain(m *testing.M) { os.Exit(labtest.Main{M: m}.Run()) }

// cluster is a Citus cluster: a coordinator and two workers on this machine.
type cluster struct {
	t           *testing.T
	coordinator *node
	workers     []*node
}

// node is one PostgreSQL server with Citus. Unlike a server of embeddedpg it has a fixed
// port, because the other nodes know it by its port after a restart.
type node struct {
	t      *testing.T
	folder string
	port   int
	cmd    *exec.Cmd
	exited chan struct{}
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	// Below /var/tmp, which another user can access: PostgreSQL does not run as root.
	folder, err := os.MkdirTemp("/var/tmp", "orders-citus-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	require.NoError(t, os.Chmod(folder, 0o755))
	role, err := os.ReadFile("../../deploy/pgbouncer/role.sql")
	require.NoError(t, err)
	c := &cluster{t: t}
	for i := range 3 {
		n := &node{t: t, folder: filepath.Join(folder, strconv.Itoa(i)), port: freePort(t)}
		n.init()
		n.start()
		n.exec("postgres", "CREATE ROLE orders LOGIN SUPERUSER", string(role))
		t.Cleanup(n.kill)
		if i == 0 {
			c.coordinator = n
		} else {
			c.workers = append(c.workers, n)
		}
	}
	return c
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// command runs a program of PostgreSQL, as an unprivileged user if the test runs as root.
func (n *node) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("CITUS_BIN"), program), args...)
	cmd.Dir = n.folder
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + n.folder, "LC_ALL=C", "LD_LIBRARY_PATH=" + os.Getenv("CITUS_LIBRARIES")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	return cmd
}

func (n *node) init() {
	n.t.Helper()
	require.NoError(n.t, os.Mkdir(n.folder, 0o755))
	if os.Getuid() == 0 {
		require.NoError(n.t, os.Chown(n.folder, 65534, 65534))
	}
	output, err := n.command(n.t.Context(), "initdb", "-D", "data", "-U", "postgres", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8").CombinedOutput()
	require.NoError(n.t, err, "%s", output)
	settings := map[string]string{
		"shared_preload_libraries":          "citus",
		"listen_addresses":                  "127.0.0.1",
		"unix_socket_directories":           "",
		"port":                              strconv.Itoa(n.port),
		"wal_level":                         "logical", // moving a shard needs it
		"max_connections":                   "500",
		"max_prepared_transactions":         "1000",
		"max_worker_processes":              "200", // each database has a maintenance daemon
		"ssl":                               "off",
		"citus.node_conninfo":               "sslmode=disable",
		"citus.max_cached_conns_per_worker": "1",
		"citus.max_shared_pool_size":        "400",
		"citus.shard_count":                 "8",
		"fsync":                             "off", // not synchronous_commit: a killed node keeps its commits
		"full_page_writes":                  "off",
	}
	var text bytes.Buffer
	for name, value := range settings {
		fmt.Fprintf(&text, "%s = '%s'\n", name, value)
	}
	file, err := os.OpenFile(filepath.Join(n.folder, "data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(n.t, err)
	_, err = file.Write(text.Bytes())
	require.NoError(n.t, errors.Join(err, file.Close()))
}

// start starts the server and waits until it accepts connections.
func (n *node) start() {
	n.t.Helper()
	log, err := os.OpenFile(filepath.Join(filepath.Dir(n.folder), strconv.Itoa(n.port)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(n.t, err)
	defer log.Close()
	n.cmd = n.command(context.Background(), "postgres", "-D", "data")
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.exited = make(chan struct{})
	require.NoError(n.t, n.cmd.Start())
	go func(cmd *exec.Cmd, exited chan struct{}) {
		defer close(exited)
		_ = cmd.Wait()
	}(n.cmd, n.exited)
	programtest.Eventually(n.t, func() bool {
		conn, err := pgx.Connect(n.t.Context(), n.adminURL("postgres"))
		if err != nil {
			select {
			case <-n.exited:
				text, _ := os.ReadFile(log.Name())
				require.Fail(n.t, "a node does not start", "%s", text)
			default:
			}
			return false
		}
		return conn.Close(n.t.Context()) == nil
	})
}

// kill ends the server without a shutdown, as a crash does.
func (n *node) kill() {
	_ = n.cmd.Process.Signal(syscall.SIGQUIT)
	<-n.exited
}

// url connects as the service does. Its role has the session timeouts (R21), also in the
// sessions that the coordinator opens on a worker.
func (n *node) url(database string) string {
	return fmt.Sprintf("postgres://orders@127.0.0.1:%d/%s?sslmode=disable", n.port, database)
}

// adminURL connects as an operator, whose statements may take longer.
func (n *node) adminURL(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", n.port, database)
}

func (n *node) exec(database string, statements ...string) {
	n.t.Helper()
	conn, err := pgx.Connect(n.t.Context(), n.adminURL(database))
	require.NoError(n.t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	for _, statement := range statements {
		_, err := conn.Exec(n.t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
		require.NoError(n.t, err, statement)
	}
}

// createDatabase creates a database of the cluster, without tables.
func (c *cluster) createDatabase(name string) {
	c.t.Helper()
	nodes := append([]*node{c.coordinator}, c.workers...)
	for _, n := range nodes {
		n.exec("postgres", "CREATE DATABASE "+name)
		n.exec(name, "CREATE EXTENSION citus")
	}
	join := []string{fmt.Sprintf("SELECT citus_set_coordinator_host('127.0.0.1', %d)", c.coordinator.port)}
	for _, worker := range c.workers {
		join = append(join, fmt.Sprintf("SELECT citus_add_node('127.0.0.1', %d)", worker.port))
	}
	c.coordinator.exec(name, join...)
}

// fixture returns a fixture on a migrated and distributed database.
func (c *cluster) fixture(name string) *labtest.Fixture {
	c.t.Helper()
	f := c.emptyFixture(name)
	require.Contains(c.t, labtest.Run(c.t, f.Environ, "migrate", "citus"), "distributed: 10 ")
	f.CreateAccount()
	return f
}

// emptyFixture returns a fixture on a migrated database that is not distributed.
func (c *cluster) emptyFixture(name string) *labtest.Fixture {
	c.t.Helper()
	c.createDatabase(name)
	return c.migrated(name)
}

func (c *cluster) migrated(name string) *labtest.Fixture {
	c.t.Helper()
	pool, err := pgxpool.New(c.t.Context(), c.coordinator.url(name))
	require.NoError(c.t, err)
	c.t.Cleanup(pool.Close)
	f := labtest.NewFixtureOn(c.t, pool, c.coordinator.url(name),
		"STRIPE_TIMEOUT=2s", "LOCK_TIMEOUT=5s", "COMPLETER_GRACE=6s")
	labtest.Run(c.t, f.Environ, "migrate", "up")
	return f
}

// workerURLs returns what DBTEST_CITUS_WORKERS names.
func (c *cluster) workerURLs() string {
	urls := make([]string, len(c.workers))
	for i, worker := range c.workers {
		urls[i] = worker.url("postgres")
	}
	return strings.Join(urls, " ")
}
