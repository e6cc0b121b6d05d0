//go:build citus

package citus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	c := &cluster{t: t}
	for i := range 3 {
		port, err := labtest.FreePort()
		require.NoError(t, err)
		n := &node{t: t, folder: filepath.Join(folder, strconv.Itoa(i)), port: port}
		n.init()
		n.start()
		n.exec("postgres", "CREATE DATABASE orders")
		n.exec("orders", "CREATE EXTENSION citus")
		t.Cleanup(n.kill)
		if i == 0 {
			c.coordinator = n
		} else {
			c.workers = append(c.workers, n)
		}
	}
	c.coordinator.exec("orders", fmt.Sprintf("SELECT citus_set_coordinator_host('127.0.0.1', %d)", c.coordinator.port))
	for _, worker := range c.workers {
		c.coordinator.exec("orders", fmt.Sprintf("SELECT citus_add_node('127.0.0.1', %d)", worker.port))
	}
	c.shell("psql -d orders -f deploy/roles.sql")
	c.shell(c.documented("Groups of accounts", "", c.coordinator)[0])
	return c
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
		conn, err := pgx.Connect(n.t.Context(), n.url("postgres", "postgres"))
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

// url connects as a role.
func (n *node) url(role, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", role, n.port, database)
}

func (n *node) exec(database string, statements ...string) {
	n.t.Helper()
	conn, err := pgx.Connect(n.t.Context(), n.url("postgres", database))
	require.NoError(n.t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	for _, statement := range statements {
		_, err := conn.Exec(n.t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
		require.NoError(n.t, err, statement)
	}
}

// shell runs commands as an operator of the coordinator.
func (c *cluster) shell(commands string) {
	c.t.Helper()
	// Only psql may read these variables, because orders rejects them.
	psql := fmt.Sprintf("psql() { PGHOST=127.0.0.1 PGPORT=%d PGUSER=postgres command psql \"$@\"; }\n", c.coordinator.port)
	shell := exec.CommandContext(c.t.Context(), "sh", "-e", "-c", psql+commands)
	shell.Dir = "../.."
	shell.Env = []string{
		"PATH=" + filepath.Dir(labtest.Program()) + ":" + os.Getenv("CITUS_BIN") + ":" + os.Getenv("PATH"), "HOME=" + c.t.TempDir(),
		"LD_LIBRARY_PATH=" + os.Getenv("CITUS_LIBRARIES"),
	}
	printed, err := shell.CombinedOutput()
	require.NoError(c.t, err, "%s\n%s", commands, printed)
}

// documented returns the commands of a section of docs/scaling.md, with the addresses of this cluster.
func (c *cluster) documented(heading, schema string, worker *node) []string {
	c.t.Helper()
	page, err := os.ReadFile("../../docs/scaling.md")
	require.NoError(c.t, err)
	_, text, found := strings.Cut(string(page), "\n## "+heading+"\n")
	require.True(c.t, found, heading)
	block := regexp.MustCompile("(?s)```console\n\\$ (.*?)```").FindStringSubmatch(text)
	require.NotNil(c.t, block, heading)
	text = strings.NewReplacer(":…@10.0.0.5:5432/", fmt.Sprintf("@127.0.0.1:%d/", c.coordinator.port),
		"'10.0.0.7', 5432", fmt.Sprintf("'127.0.0.1', %d", worker.port), "shop_a", schema).Replace(block[1])
	return strings.Split(text, "\n$ ")
}

// fixture creates a schema as docs/scaling.md says, and an account.
func (c *cluster) fixture(schema string, settings ...string) *labtest.Fixture {
	c.t.Helper()
	c.shell(strings.Join(c.documented("Several installations in one database", schema, c.workers[0]), "\n"))
	path := "&search_path=" + schema
	pool, err := pgxpool.New(c.t.Context(), c.coordinator.url("postgres", "orders")+path)
	require.NoError(c.t, err)
	c.t.Cleanup(pool.Close)
	f := labtest.NewFixtureOn(c.t, pool, c.coordinator.url("orders", "orders")+path,
		append([]string{"STEP_TIMEOUT=2s", "LEASE_DURATION=5s", "COMPLETER_GRACE=6s"}, settings...)...)
	f.CreateAccount()
	return f
}
